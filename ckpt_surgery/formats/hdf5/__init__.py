"""HDF5 files of arrays: those of h5py, Keras 3 (`.weights.h5`, `.keras`) and earlier Keras (`.h5`)."""

from ckpt_surgery.formats.hdf5.detect import NAMES
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="hdf5",
    detect=NAMES.detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    holds_empty=False,
    holds_lists=False,
)
