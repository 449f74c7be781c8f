"""HDF5 files of arrays: those of h5py, Keras 3 (`.weights.h5`, `.keras`) and earlier Keras (`.h5`)."""

from ckpt_surgery.formats.hdf5.detect import NAMES
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="hdf5",
    detect=NAMES.detect,
    source="ckpt_surgery.formats.hdf5.source:open_hdf5",
    encoder="ckpt_surgery.formats.hdf5.encoder:hdf5_encoder",
    sink="ckpt_surgery.formats.hdf5.layout:open_hdf5_sink",
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    holds_empty=False,
    holds_lists=False,
)
