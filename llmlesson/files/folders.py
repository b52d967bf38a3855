"""Folders that may not exist yet: what is free there, and whether they can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def nearest_existing(folder: Path) -> Path:
    """`folder`, or the nearest of its parents that exists."""
    return next((parent for parent in (folder, *folder.parents) if os.path.exists(parent)), folder)


def free_space(folder: Path) -> int:
    """Bytes free where `folder` is, or will be."""
    return shutil.disk_usage(nearest_existing(folder)).free


def write_error(folder: Path) -> str | None:
    """Why no file can be made in `folder`, or where it would be made; None if one can. Leaves nothing behind."""
    try:
        # Tried, since permission bits don't tell of read-only disks, Windows' access lists, or a user who may all.
        with tempfile.TemporaryFile(dir=nearest_existing(folder)):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__
