"""GGUF, the files of llama.cpp: one, or a split model whose first file names the set."""

from ckpt_surgery.formats.gguf.detect import NAMES
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="gguf",
    detect=NAMES.detect,
    module=__name__,
    suffixes=NAMES.suffixes,
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
