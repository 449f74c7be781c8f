"""NumPy's `.npz`: one zip archive of `.npy` files, as `np.savez` and `np.savez_compressed` write it."""

from ckpt_surgery.formats.npz.detect import NAMES
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="npz",
    detect=NAMES.detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    flat=True,
    holds_empty=False,
    holds_lists=False,
)
