"""Flax's MessagePack files: `flax.serialization`, `flax.training.checkpoints`, Hugging Face, EasyLM."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.flax_layout import SUFFIX, detect
from ckpt_surgery.formats.flax_sink import open_flax_sink
from ckpt_surgery.formats.flax_source import open_flax

FORMAT = Format(
    name="flax",
    detect=detect,
    open_source=open_flax,
    open_sink=open_flax_sink,
    suffixes=(SUFFIX,),
    is_file=lambda name: True,
    holds_metadata=False,
)
