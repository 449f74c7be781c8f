"""GGUF, the files of llama.cpp: one, or a split model whose first file names the set.

Source of the names: gguf 0.19 (`SHARD_NAME_FORMAT`) and `gguf-split` of llama.cpp.
"""

import re
from dataclasses import dataclass

from ckpt_surgery.formats.registry import Format, Names
from ckpt_surgery.storage.reading import OpenFile

MAGIC = b"GGUF"
_SHARD = re.compile(r"(?<=.)-(\d{5})-of-(\d{5})\.gguf\Z")
_OTHER_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".msgpack", ".h5")
"""Ends of the names of weights that a model's repository has GGUF files beside: those stand for it."""


@dataclass(frozen=True)
class SplitFile:
    """One file of a split model, as its name describes it."""

    prefix: str
    number: int
    """Number of the file in the set, from 1 on."""
    count: int
    """Number of files of the set."""

    def name(self, number: int) -> str:
        """The name of a file of the same set."""
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}.gguf"


def split_file(name: str) -> SplitFile | None:
    """The set that a file belongs to by its name; None where it stands alone."""
    match = _SHARD.search(name)
    return match and SplitFile(name[: match.start()], int(match[1]), int(match[2]))


def _begins(file: OpenFile) -> bool:
    return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC


NAMES = Names("GGUF models", _begins, (".gguf",), shard=_SHARD, others=_OTHER_WEIGHTS)

FORMAT = Format(
    name="gguf",
    detect=NAMES.detect,
    module=__name__,
    suffixes=NAMES.suffixes,
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
