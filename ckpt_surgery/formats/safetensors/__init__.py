"""The safetensors format: one file, or shards with an index, as Hugging Face models come."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.safetensors.detect import NAMES, SUFFIX

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
