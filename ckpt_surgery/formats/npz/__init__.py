"""NumPy's `.npz`: one zip archive of `.npy` files, as `np.savez` and `np.savez_compressed` write it."""

from ckpt_surgery.formats.npz.detect import NAMES
from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.shared.zip.layout import MOST_COMMENT_BYTES

FORMAT = Format(
    name="npz",
    detect=NAMES.detect,
    source="ckpt_surgery.formats.npz.source:open_npz",
    encoder="ckpt_surgery.formats.npz.encoder:npz_encoder",
    sink="ckpt_surgery.formats.npz.layout:open_npz_sink",
    suffixes=NAMES.suffixes,
    flat=True,
    is_file=lambda name: True,
    metadata_bytes=MOST_COMMENT_BYTES,
    holds_empty=False,
    holds_lists=False,
)
