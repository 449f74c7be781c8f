"""Which files a safetensors checkpoint is: one, or shards with an index, as Hugging Face models come."""

import os
import re

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.single_file import not_one, without_index
from ckpt_surgery.storage.listing import is_directory, names_in
from ckpt_surgery.storage.reading import opened

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
PREFIX_BYTES = 8
"""Length of the number that begins a file: the header's length, little-endian."""
READERS_EXPECT = {"format": "pt"}
"""Metadata that readers look for if there is any: transformers before version 5."""
MOST_HEADER_BYTES = 100_000_000
"""The format's limit for the length of a header."""
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.safetensors\Z")
_ZIP = b"PK\x03\x04"
"""The first bytes of zip archives such as PyTorch's, whatever their names."""


def detect(path: PathLike) -> bool:
    """Whether a path is a safetensors file, an index, or a directory that holds some; damaged ones too."""
    place = os.fspath(path)
    try:
        if is_directory(place):
            return any(name.endswith((SUFFIX, INDEX_SUFFIX)) for name in names_in(place))
        return place.endswith(INDEX_SUFFIX) or _looks_right(place)
    except SourceError:
        return False


def _looks_right(path: str) -> bool:
    """Whether a file begins as one of this format, or has its suffix and does not begin as a zip archive."""
    with opened(path) as file:
        head = file.read(0, min(PREFIX_BYTES + 1, file.stat.size))
    length = int.from_bytes(head[:PREFIX_BYTES], "little")
    fits = 2 <= length <= min(MOST_HEADER_BYTES, file.stat.size - PREFIX_BYTES)
    named = path.endswith(SUFFIX) and not head.startswith(_ZIP)
    return named or (fits and head.endswith(b"{"))


def chosen(directory: str) -> str:
    """The name of the file in a directory that stands for all of it: the single one, or the index.

    Raises SourceError where it is not clear which.
    """
    names = names_in(directory)
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    files = [name for name in names if name.endswith(SUFFIX)]
    usual = [name for name in (SINGLE_NAME, INDEX_NAME) if name in names]
    found = usual or indexes or files
    if len(found) == 1 and not _is_part(found[0]):
        return found[0]
    if found and all(map(_SHARD.search, found)):
        raise without_index(directory, found, INDEX_NAME)
    raise not_one(directory, "safetensors checkpoints", found)


def _is_part(name: str) -> bool:
    """Whether a file is one of several by its name."""
    match = _SHARD.search(name)
    return match is not None and int(match[2]) != 1
