"""NumPy's `.npz`: one zip archive of `.npy` files, as `np.savez` and `np.savez_compressed` write it."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.npz_sink import open_npz_sink
from ckpt_surgery.formats.npz_source import SUFFIX, detect, open_npz

FORMAT = Format(
    name="npz",
    detect=detect,
    open_source=open_npz,
    open_sink=open_npz_sink,
    suffixes=(SUFFIX,),
    is_file=lambda name: True,
)
