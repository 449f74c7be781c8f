"""What lies in directories."""

import os
import shutil
from pathlib import Path


def names(directory: Path) -> list[str]:
    """The names of everything in a directory, hidden files included, in order."""
    return sorted(os.listdir(directory))


def files_of(path: Path) -> list[Path]:
    """The files of a checkpoint that is a file, or a directory."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def copy_of(path: Path, destination: Path) -> Path:
    """A copy, which a test can damage, of a checkpoint that is a file or a directory; where it lies.

    A directory is copied to `destination`, a file into it.
    """
    if path.is_dir():
        return Path(shutil.copytree(path, destination, symlinks=True))
    destination.mkdir()
    return Path(shutil.copy(path, destination / path.name))


def state_of(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """By relative path of every file: content, modification time in nanoseconds, and mode."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def touched(directory: Path, *names: str) -> Path:
    """Make a directory with these empty files below it; a name that ends with `/` is a directory's."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).mkdir(exist_ok=True) if name.endswith("/") else (directory / name).touch()
    return directory
