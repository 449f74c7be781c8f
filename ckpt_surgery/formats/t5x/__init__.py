"""T5X checkpoints, and Orbax's from before it wrote `_METADATA`: MessagePack, and zarr arrays beside it."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.t5x.detect import detect

FORMAT = Format(
    name="t5x",
    detect=detect,
    module=__name__,
    choices=("step", "item"),
    replaces_files=True,
    holds_lists=False,
)
