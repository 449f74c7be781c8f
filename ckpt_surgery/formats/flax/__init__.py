"""Flax's MessagePack files: `flax.serialization`, `flax.training.checkpoints`, Hugging Face, EasyLM."""

from ckpt_surgery.formats.flax.detect import SUFFIX, detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="flax",
    detect=detect,
    source="ckpt_surgery.formats.flax.source:open_flax",
    encoder="ckpt_surgery.formats.flax.encoder:flax_encoder",
    sink="ckpt_surgery.formats.flax.layout:open_flax_sink",
    suffixes=(SUFFIX,),
    is_file=lambda name: True,
    holds_metadata=False,
    holds_lists=False,
)
