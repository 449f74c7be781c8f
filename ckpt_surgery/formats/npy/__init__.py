"""NumPy's `.npy`: a directory of such files, whose paths are the keys, or a single one. Only read."""

from ckpt_surgery.formats.npy.detect import detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="npy",
    detect=detect,
    module=__name__,
    suffixes=(".npy",),
    holds_empty=False,
    holds_lists=False,
)
