"""The safetensors format: one file, or shards with an index, as Hugging Face models come."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.safetensors_sink import open_safetensors_sink
from ckpt_surgery.formats.safetensors_source import SUFFIX, detect, open_safetensors

FORMAT = Format(
    name="safetensors",
    detect=detect,
    open_source=open_safetensors,
    open_sink=open_safetensors_sink,
    suffixes=(SUFFIX,),
    is_file=lambda name: name.endswith(SUFFIX),
    shards=True,
)
