"""Folders: their names for reading, and whether they can be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def short(path: str | Path) -> str:
    """The path with `~` for the home folder, for reading."""
    path, home = Path(path), Path(os.path.expanduser("~"))
    return str(Path("~") / path.relative_to(home)) if path != home and path.is_relative_to(home) else str(path)


def write_error(folder: Path) -> str | None:
    """Why no file can be made in `folder`, or where it would be made; None if one can. Leaves nothing behind."""
    existing = next((parent for parent in (folder, *folder.parents) if os.path.exists(parent)), folder)
    try:
        # Tried, since permission bits don't tell of read-only disks, Windows' access lists, or a user who may all.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__
