"""Directories whose files are those of another directory: hard links, where they are possible."""

import os
import shutil
from collections.abc import Set
from pathlib import Path

from ckpt_surgery.storage.linking import UNSUPPORTED


def link_rest(source: Path, target: Path, keep: Set[str], leave_out: Set[str]) -> None:
    """Fill `target` with the entries of `source`, besides those named in `keep` that are there already.

    Everything else in `target` is removed first, such as what an earlier attempt linked. `leave_out`: names
    of entries of `source` that are not taken. A file becomes a hard link, or a copy where that is impossible;
    a symbolic link stays one. Raises OSError.
    """
    for entry in list(os.scandir(target)):
        if entry.name not in keep:
            _remove(Path(entry.path))
    for entry in list(os.scandir(source)):
        if entry.name not in leave_out:
            _link(Path(entry.path), target / entry.name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _link(old: Path, new: Path) -> None:
    if old.is_symlink():
        os.symlink(os.readlink(old), new)
    elif old.is_dir():
        new.mkdir()
        for entry in list(os.scandir(old)):
            _link(Path(entry.path), new / entry.name)
        shutil.copystat(old, new)
    else:
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            shutil.copy2(old, new)
