"""Which files a safetensors checkpoint is: one, or shards with an index, as Hugging Face models come."""

import os
import re
from pathlib import Path

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.listing import entries, not_one, without_index
from ckpt_surgery.storage.reading import opened

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
PREFIX_BYTES = 8
"""The header's length, little-endian: how a file begins."""
MOST_HEADER_BYTES = 100_000_000
"""The format's limit."""
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.safetensors\Z")
_ZIP = b"PK\x03\x04"
"""How a PyTorch file begins, whatever its name."""


def detect(path: Path) -> bool:
    """Whether a path is a safetensors file, an index, or a directory that holds some; damaged ones too."""
    try:
        if path.is_dir():
            return any(entry.name.endswith((SUFFIX, INDEX_SUFFIX)) for entry in entries(os.fspath(path)))
        return path.name.endswith(INDEX_SUFFIX) or _looks_right(path)
    except SourceError:
        return False


def _looks_right(path: Path) -> bool:
    """By the first bytes; a file that is named so is taken for one unless it is clearly another thing."""
    with opened(os.fspath(path)) as file:
        head = file.read(0, min(PREFIX_BYTES + 1, file.stat.size))
    length = int.from_bytes(head[:PREFIX_BYTES], "little")
    fits = 2 <= length <= min(MOST_HEADER_BYTES, file.stat.size - PREFIX_BYTES)
    named = path.name.endswith(SUFFIX) and not head.startswith(_ZIP)
    return named or (fits and head.endswith(b"{"))


def chosen(directory: str) -> str:
    """The name of the file in a directory that stands for all of it: the single one, or the index."""
    names = sorted(entry.name for entry in entries(directory))
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
    """Whether a file is called one of several."""
    match = _SHARD.search(name)
    return match is not None and int(match[2]) != 1
