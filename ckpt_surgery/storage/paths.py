"""Whether two paths are one place, and how a path is written in messages."""

import os
from pathlib import Path

from ckpt_surgery.core.text import shown


def same_place(a: Path, b: Path) -> bool:
    """Whether both are one place; also for paths that do not exist, and through bind mounts."""
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    return a.exists() and b.exists() and os.path.samefile(a, b)


def lies_in(inner: Path, outer: Path) -> bool:
    return any(same_place(parent, outer) for parent in Path(os.path.realpath(inner)).parents)


def exists(path: Path) -> bool:
    """Whether anything is there, a dangling link too. Unlike os.path.lexists, an I/O error is no `False`."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def absolute(path: Path) -> Path:
    """The path with its parent's links and `..` resolved, its own name left alone."""
    path = Path(os.path.abspath(path)) if path.name in ("", "..") else path
    return Path(os.path.realpath(path.parent), path.name)


def path_text(path: Path) -> str:
    return shown(os.fspath(path))
