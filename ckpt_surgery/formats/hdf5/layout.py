"""The layout of an HDF5 file that is to be written, by itself or in one of Keras's archives."""

from collections.abc import Sequence

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.hdf5.detect import ARCHIVE_MEMBERS, WEIGHTS, is_archive_name
from ckpt_surgery.formats.hdf5.image import image_of
from ckpt_surgery.formats.registry import FilePlan, SinkOptions
from ckpt_surgery.formats.shared.zip.writing import archived

DEFAULT_NAME = "checkpoint.h5"


def layout(leaves: Sequence[Leaf], options: SinkOptions) -> list[FilePlan]:
    """One file: `checkpoint.h5`, or `options.file_name`, which may be an archive.

    The metadata is the attributes of the root group: texts and numbers as they are, other values as JSON. In
    an archive the weights come last; first comes what archives are recognized by.
    """
    name = options.file_name or DEFAULT_NAME
    if not is_archive_name(name):
        return [image_of(name, leaves, options.metadata)]
    files = options.model_files()
    names = sorted(files, key=lambda name: name not in ARCHIVE_MEMBERS)
    members = [FilePlan(name, len(files[name]), [(0, files[name])]) for name in names]
    return [archived(name, [*members, image_of(WEIGHTS, leaves, options.metadata)])]
