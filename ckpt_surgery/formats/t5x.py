"""T5X checkpoints, and Orbax's from before it wrote `_METADATA`: MessagePack, and zarr arrays beside it."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.t5x_layout import detect
from ckpt_surgery.formats.t5x_source import open_t5x

FORMAT = Format(name="t5x", detect=detect, open_source=open_t5x)
