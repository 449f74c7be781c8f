"""Which files a GGUF checkpoint is: one, or the set that the name of its first file tells.

Source of the names: gguf 0.19 (`SHARD_NAME_FORMAT`) and `gguf-split` of llama.cpp.
"""

import os
import re
from dataclasses import dataclass

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.single_file import not_one
from ckpt_surgery.storage.listing import is_directory, names_in
from ckpt_surgery.storage.reading import opened

SUFFIX = ".gguf"
MAGIC = b"GGUF"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z")
_OTHER_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".msgpack", ".h5")
"""Ends of the names of weights that a model's repository has GGUF files beside: those stand for it."""


@dataclass(frozen=True)
class Part:
    """What the name of a file tells about the set that it belongs to."""

    prefix: str
    number: int
    """Number of the file in the set, from 1 on."""
    count: int
    """Number of files of the set."""

    def name(self, number: int) -> str:
        """The name of a file of the same set."""
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}{SUFFIX}"


def part_of(name: str) -> Part | None:
    """The set that a file belongs to by its name; None where it stands alone."""
    match = _PART.match(name)
    return match and Part(match[1], int(match[2]), int(match[3]))


def detect(path: PathLike) -> bool:
    """Whether a path is a GGUF file, or a directory with some and no other weights; damaged ones too."""
    place = os.fspath(path)
    try:
        if is_directory(place):
            names = names_in(place)
            return any(map(_is_named_so, names)) and not any(n.endswith(_OTHER_WEIGHTS) for n in names)
        with opened(place) as file:
            return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC
    except SourceError:
        return False


def chosen(directory: str) -> str:
    """The name of the only model in a directory, or of its first file. Raises SourceError."""
    names = [name for name in names_in(directory) if _is_named_so(name)]
    parts = {name: part_of(name) for name in names}
    found = sorted({name if part is None else part.name(1) for name, part in parts.items()})
    if len(found) != 1:
        raise not_one(directory, "GGUF models", found)
    return found[0]


def _is_named_so(name: str) -> bool:
    return name.lower().endswith(SUFFIX)
