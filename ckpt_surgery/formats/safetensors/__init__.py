"""The safetensors format: one file, or shards with an index, as Hugging Face models come."""

import re

from ckpt_surgery.formats.registry import Format, Names
from ckpt_surgery.formats.shared.zip.members import LOCAL
from ckpt_surgery.storage.reading import OpenFile

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


def _begins(file: OpenFile) -> bool | None:
    """Whether a file begins with a header that fits in it; False for zip archives, as PyTorch's are."""
    head = file.read(0, min(PREFIX_BYTES + 1, file.stat.size))
    length = int.from_bytes(head[:PREFIX_BYTES], "little")
    if head.endswith(b"{") and 2 <= length <= min(MOST_HEADER_BYTES, file.stat.size - PREFIX_BYTES):
        return True
    return False if head.startswith(LOCAL) else None


NAMES = Names("safetensors checkpoints", _begins, (SUFFIX,), INDEX_SUFFIX, (SINGLE_NAME, INDEX_NAME), _SHARD)

FORMAT = Format(
    name="safetensors",
    detect=NAMES.detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: name.lower().endswith(SUFFIX),
    options=("shard_size",),
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
