"""Flax's MessagePack files: `flax.serialization`, `flax.training.checkpoints`, Hugging Face, EasyLM."""

from ckpt_surgery.formats.flax.detect import NAMES, detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="flax",
    detect=detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    choices=("step",),
    holds_metadata=False,
    holds_lists=False,
)
