"""Reading HDF5 files: h5py lists them, the elements are read without it, region by region.

One of Keras's archives is a zip file with the model's config, `metadata.json`, perhaps files of layers in
`assets/`, and the weights as an HDF5 file, which is stored as it is. (Source: keras/src/saving/saving_lib.py
of Keras 3.)
"""

import os
from collections.abc import Mapping
from functools import partial

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.formats.chunk_reading import by_chunk
from ckpt_surgery.formats.hdf5 import NAMES, WEIGHTS, is_archive
from ckpt_surgery.formats.hdf5.attributes import root_attributes
from ckpt_surgery.formats.hdf5.datasets import FileSpan, decode_chunk
from ckpt_surgery.formats.hdf5.library import FileView, import_h5py, opened_hdf5
from ckpt_surgery.formats.hdf5.listing import listed
from ckpt_surgery.formats.hdf5.superblock import base_of
from ckpt_surgery.formats.hdf5.texts import Texts
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.zip.inflating import read_member
from ckpt_surgery.formats.shared.zip.members import read_archive, wrong
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened

MOST_BYTES = 64 << 20
"""Bytes of all members of an archive but the weights that are taken over at most."""
ALONE = "Write the weights alone, as NAME.weights.h5, which `model.load_weights` loads."


def read(path: str, selection: Selection) -> Listing:
    """Open an HDF5 file, one of Keras's archives, or the only one of them in a directory.

    Raises MissingLibraryError where h5py is missing.
    """
    name = os.path.join(*NAMES.file_of(path))
    import_h5py(name)
    with opened(name) as file:
        room = _room(file)
    view = FileView(name, file.stat, room.start, room.size)
    base = base_of(view)
    with opened_hdf5(view) as h5, with_path(name):
        texts = Texts(view, base)
        leaves = listed(h5, room, texts)
        metadata = root_attributes(h5, texts)
    details = SourceDetails(model_files=partial(_model_files, name, file.stat))
    return Listing(leaves, {name: file.stat}, metadata, decode=by_chunk(decode_chunk), details=details)


def _room(file: OpenFile) -> FileSpan:
    """Span of the HDF5 file: the whole file, or a member of an archive that is stored as it is."""
    if not is_archive(file):
        return FileSpan(file.path, 0, file.stat.size)
    archive = read_archive(file)
    if WEIGHTS not in archive:
        raise wrong(file, f"it has no member `{WEIGHTS}`", "Save the model with Keras 3 in one file.")
    member = archive[WEIGHTS]
    if member.deflated:
        raise wrong(file, f"`{WEIGHTS}` is compressed in the archive", "Unpack it and name that file.")
    return FileSpan(file.path, member.offset, member.size)


def _model_files(name: str, stat: FileStat) -> Mapping[str, bytes]:
    """Members of one of Keras's archives beside the weights, by name; empty for other files.

    Raises UsageError where they are too large or a name leads elsewhere.
    """
    with opened(name, stat) as file:
        if not is_archive(file):
            return {}
        members = [member for member in read_archive(file).members if member.name != WEIGHTS]
        total = sum(member.size for member in members)
        if total > MOST_BYTES:
            raise UsageError(
                f"{shown(name)} holds {bytes_text(total)} beside its weights, and {bytes_text(MOST_BYTES)} "
                "is the most that is taken over into another archive",
                hint=ALONE,
            )
        for member in members:
            if _leads_elsewhere(member.name):
                raise UsageError(
                    f"{shown(name)} has a member `{shown(member.name[:200])}`, whose name leads out of it",
                    hint=ALONE,
                )
        return {member.name: read_member(file, member, MOST_BYTES) for member in members}


def _leads_elsewhere(name: str) -> bool:
    parts = name.split("/")
    return bool({"", ".", ".."} & set(parts)) or "\\" in name or "\0" in name or ":" in parts[0]
