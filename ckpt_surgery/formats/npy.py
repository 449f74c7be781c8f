"""NumPy's `.npy`: a directory of such files, whose paths are the keys, or a single one. Only read."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ckpt_surgery.arrays import Leaf, Region
from ckpt_surgery.errors import SourceError, UsageError
from ckpt_surgery.formats import Format, Selection
from ckpt_surgery.formats.byte_ranges import opened
from ckpt_surgery.formats.files import FileStat, about, entries, walk
from ckpt_surgery.formats.npy_header import MAGIC, NpyArray, read_npy
from ckpt_surgery.formats.npz_source import leaf_of, unusable
from ckpt_surgery.formats.stretches import StretchesSource
from ckpt_surgery.keys import natural_order, shown

SUFFIX = ".npy"
BESIDE = (SUFFIX, ".json", ".md", ".txt")
"""What may lie in a directory that is taken for one of arrays."""
MOST_LISTED = 10_000
"""Files that are looked at before a directory is taken for what the names so far say."""


def detect(path: Path) -> bool:
    """Whether a path is a `.npy` file, or a directory with nothing but those and notes; damaged ones too."""
    if not os.path.isdir(path):
        return _is_array(path)
    found = False
    try:
        for count, name in enumerate(_names_below(os.fspath(path))):
            if not name.endswith(BESIDE) or count == MOST_LISTED:
                return found and name.endswith(BESIDE)
            found |= name.endswith(SUFFIX)
    except SourceError:
        return False
    return found


def _is_array(path: Path) -> bool:
    if path.name.endswith(SUFFIX):
        return os.path.isfile(path)
    try:
        with opened(os.fspath(path)) as file:
            return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC
    except SourceError:
        return False


def _names_below(directory: str) -> Iterator[str]:
    """Of files, as far as one asks; files before directories. Linked directories are not entered."""
    pending = [directory]
    while pending:
        listed = entries(pending.pop())
        yield from (entry.name for entry in listed if not entry.is_dir(follow_symlinks=False))
        pending += (entry.path for entry in listed if entry.is_dir(follow_symlinks=False))


class NpySource(StretchesSource):
    """`.npy` files, opened for reading. Safe to use from several threads."""

    def __init__(self, path: str, directory: str, files: dict[str, FileStat], arrays: dict[str, NpyArray]):
        self._arrays = {_key(name): array for name, array in arrays.items()}
        leaves = {_key(name): leaf_of(_key(name), array, name, 0) for name, array in arrays.items()}
        super().__init__(path, "npy", directory, leaves, files, {})

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        if leaf.manifest is None:
            raise unusable(leaf, self._arrays[leaf.key.text])
        return super().read(leaf, region)


def _key(name: str) -> str:
    return name.removesuffix(SUFFIX)


def _read_header(path: str, expected: FileStat | None) -> tuple[FileStat, NpyArray]:
    with opened(path, expected) as file, about(path):
        return file.stat, read_npy(file.read, file.stat.size)


def _files_of(directory: str) -> dict[str, FileStat]:
    """The `.npy` files below a directory in the order of their names, numbers in them by value."""
    found = walk(directory, os.path.realpath(directory))
    names = sorted((name for name in found if name.endswith(SUFFIX)), key=natural_order)
    if not names:
        raise SourceError(f"{shown(directory)} holds no .npy file", hint="Check the path.")
    for name in names:
        if any("\udc80" <= character <= "\udcff" for character in name):
            raise SourceError(
                f"{shown(os.path.join(directory, name))} has a name that is not valid UTF-8",
                hint="Rename it.",
            )
    return {name: found[name] for name in names}


def open_npy(path: str, selection: Selection) -> NpySource:
    """Open a directory of `.npy` files, or one of them, whose name is then the key.

    Other files in a directory are left alone. Raises SourceError where a file is not whole or a link leaves
    the directory, UsageError for a step or an item.
    """
    if selection.step is not None or selection.item is not None:
        raise UsageError(
            f"{shown(path)} holds .npy files, which have no steps or items",
            hint="Leave out --step and --item.",
        )
    if os.path.isdir(path):
        files = _files_of(path)
        arrays = {name: _read_header(os.path.join(path, name), stat)[1] for name, stat in files.items()}
        return NpySource(path, path, files, arrays)
    directory, name = os.path.split(path)
    stat, array = _read_header(path, None)
    return NpySource(path, directory, {name: stat}, {name: array})


FORMAT = Format(name="npy", detect=detect, open_source=open_npy)
