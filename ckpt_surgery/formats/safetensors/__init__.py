"""The safetensors format: one file, or shards with an index, as Hugging Face models come."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.safetensors.detect import NAMES, READERS_EXPECT, SUFFIX

FORMAT = Format(
    name="safetensors",
    detect=NAMES.detect,
    source="ckpt_surgery.formats.safetensors.source:open_safetensors",
    encoder="ckpt_surgery.formats.safetensors.encoder:safetensors_encoder",
    sink="ckpt_surgery.formats.safetensors.layout:open_safetensors_sink",
    suffixes=NAMES.suffixes,
    flat=True,
    is_file=lambda name: name.lower().endswith(SUFFIX),
    shards=True,
    reserves_record=True,
    holds_config=True,
    metadata_entries=READERS_EXPECT,
    holds_empty=False,
    holds_lists=False,
)
