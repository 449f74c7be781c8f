"""The safetensors format: one file, or shards with an index, as Hugging Face models come."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.safetensors.detect import READERS_EXPECT, SUFFIX, detect

FORMAT = Format(
    name="safetensors",
    detect=detect,
    source="ckpt_surgery.formats.safetensors.source:open_safetensors",
    encoder="ckpt_surgery.formats.safetensors.encoder:safetensors_encoder",
    sink="ckpt_surgery.formats.safetensors.sink:open_safetensors_sink",
    suffixes=(SUFFIX,),
    flat=True,
    is_file=lambda name: name.lower().endswith(SUFFIX),
    shards=True,
    reserves_record=True,
    holds_config=True,
    metadata_entries=READERS_EXPECT,
    holds_empty=False,
    holds_lists=False,
)
