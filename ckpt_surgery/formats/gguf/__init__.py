"""GGUF, the files of llama.cpp: one, or a split model whose first file names the set."""

from ckpt_surgery.formats.gguf.detect import SUFFIX, detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="gguf",
    detect=detect,
    source="ckpt_surgery.formats.gguf.source:open_gguf",
    suffixes=(SUFFIX,),
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
