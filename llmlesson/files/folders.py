"""Folders that may not exist yet: how much space is free, and whether they are writable."""

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
    """Why files can't be written to `folder`, or where it would be; None if they can. Leaves nothing behind."""
    try:
        # We try it, because permission bits don't reveal read-only disks, Windows' access lists, or root's rights.
        with tempfile.TemporaryFile(dir=nearest_existing(folder)):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__
