"""GGUF, the files of llama.cpp: one, or a split model whose first file names the set.

Source of the names: gguf 0.19 (`SHARD_NAME_FORMAT`) and `gguf-split` of llama.cpp.
"""

import re

from ckpt_surgery.formats.registry import Format, Names
from ckpt_surgery.storage.reading import OpenFile

MAGIC = b"GGUF"
SHARD = re.compile(r"(?<=.)-(\d{5})-of-(\d{5})\.gguf\Z")
_OTHER_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".msgpack", ".h5")
"""Ends of the names of weights that a model's repository has GGUF files beside: those stand for it."""


def _begins(file: OpenFile) -> bool:
    return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC


NAMES = Names("GGUF models", _begins, (".gguf",), shard=SHARD, others=_OTHER_WEIGHTS)

FORMAT = Format(
    name="gguf",
    detect=NAMES.detect,
    module=__name__,
    suffixes=NAMES.suffixes,
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
