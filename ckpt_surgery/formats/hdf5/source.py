"""Reading HDF5 files: h5py lists them, the elements are read without it, region by region."""

import os
from collections.abc import Mapping
from functools import partial

from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.formats.chunk_reading import by_chunk
from ckpt_surgery.formats.hdf5.archives import model_files
from ckpt_surgery.formats.hdf5.attributes import root_attributes
from ckpt_surgery.formats.hdf5.datasets import FileSpan, StoredDataset
from ckpt_surgery.formats.hdf5.detect import NAMES, WEIGHTS, is_archive
from ckpt_surgery.formats.hdf5.file_view import FileView
from ckpt_surgery.formats.hdf5.filters import decode_chunk
from ckpt_surgery.formats.hdf5.library import import_h5py, opened_hdf5
from ckpt_surgery.formats.hdf5.listing import listed
from ckpt_surgery.formats.hdf5.superblock import base_of
from ckpt_surgery.formats.hdf5.texts import Texts
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.zip.members import read_archive, wrong
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened


def read(path: str, selection: Selection) -> Listing:
    """Open an HDF5 file, one of Keras's archives, or the only one of them in a directory.

    Raises SourceError where it is not whole, UsageError for a step or an item and where h5py is missing.
    """
    name = os.path.join(*NAMES.file_of(path))
    import_h5py(name)
    with opened(name) as file:
        room = _room(file)
    view = FileView(name, file.stat, room.start, room.size)
    base = base_of(view)
    with opened_hdf5(view) as h5, with_path(name):
        texts = Texts(view, base)
        datasets = listed(h5, room, texts)
        metadata = root_attributes(h5, texts)
    leaves = {text: _leaf(Key.parse(text), dataset) for text, dataset in datasets.items()}
    details = SourceDetails(model_files=partial(_model_files, name, file.stat))
    return Listing(leaves, {name: file.stat}, metadata, decode=by_chunk(decode_chunk), details=details)


def _leaf(key: Key, dataset: StoredDataset) -> Leaf:
    if dataset.spec is None:
        return Leaf(key, LeafKind.EMPTY, empty="None")
    return Leaf(key, LeafKind.ARRAY, dataset.spec, dataset.manifest, unreadable=dataset.unreadable)


def _model_files(name: str, stat: FileStat) -> Mapping[str, bytes]:
    """What one of Keras's archives holds beside the weights; nothing for other files."""
    with opened(name, stat) as file:
        return model_files(file, read_archive(file)) if is_archive(file) else {}


def _room(file: OpenFile) -> FileSpan:
    """Where the HDF5 file lies: it is the whole file, or a member of an archive that is stored as it is."""
    if not is_archive(file):
        return FileSpan(file.path, 0, file.stat.size)
    archive = read_archive(file)
    if WEIGHTS not in archive:
        raise wrong(file, f"it has no member `{WEIGHTS}`", "Save the model with Keras 3 in one file.")
    member = archive[WEIGHTS]
    if member.deflated:
        raise wrong(file, f"`{WEIGHTS}` is compressed in the archive", "Unpack it and name that file.")
    return FileSpan(file.path, member.offset, member.size)
