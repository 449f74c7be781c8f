"""Whether two paths mean the same file or directory, whether one can be written, and how it is printed."""

import os
from pathlib import Path

from ckpt_surgery.core.errors import StorageError, UsageError
from ckpt_surgery.core.text import shown


def same_place(a: Path, b: Path) -> bool:
    """Whether both mean the same file or directory, through links and bind mounts; it need not exist.

    Where one of them may not be looked at, only the paths tell: it can be neither read nor replaced either.
    """
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    try:
        return a.exists() and b.exists() and os.path.samefile(a, b)
    except PermissionError:
        return False


def lies_in(inner: Path, outer: Path) -> bool:
    """Whether one of the directories that hold `inner` is `outer`."""
    return any(same_place(parent, outer) for parent in Path(os.path.realpath(inner)).parents)


def exists(path: Path) -> bool:
    """Whether a name is taken, even by a link that leads nowhere. Raises OSError where that is unknown."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_stream(path: Path) -> bool:
    """Whether a path leads to a device or a pipe, which is written to and not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def absolute(path: Path) -> Path:
    """The path with links and `..` in its parent resolved, and its own name as it is."""
    path = Path(os.path.abspath(path)) if path.name in ("", "..") else path
    return Path(os.path.realpath(path.parent), path.name)


def path_text(path: Path) -> str:
    """A path, safe to print."""
    return shown(os.fspath(path))


def check_parent(path: Path) -> None:
    """Raise UsageError where the parent directory is missing, StorageError where it is read-only."""
    parent = absolute(path).parent
    if not parent.is_dir():
        raise UsageError(f"{path_text(parent)}: no such directory", hint="Create it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{path_text(parent)}: cannot be written to", hint="Check its permissions.")
