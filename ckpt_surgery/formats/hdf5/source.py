"""Reading HDF5 files: h5py lists them, the elements are read without it, region by region.

One of Keras's archives is a zip file with the model's config, `metadata.json`, perhaps files of layers in
`assets/`, and the weights as an HDF5 file, which is stored as it is. (Source: keras/src/saving/saving_lib.py
of Keras 3.) Datasets are listed by their key paths, by hard links alone.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR, Key, natural_order
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.formats.hdf5 import NAMES, WEIGHTS, is_archive, library, signature_at
from ckpt_surgery.formats.hdf5.datasets import MERGE, decode_region, describe_dataset
from ckpt_surgery.formats.hdf5.library import root_attributes
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.zip.members import read_archive, read_member, wrong
from ckpt_surgery.storage.failures import damaged, flawed, with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened

MOST_LEVELS = 256
"""Groups nested deeper than this are refused."""
HARD_LINK = (
    "Make it a hard link, with `file = h5py.File(PATH, 'r+')`: `x = file[{name!r}]; del file[{name!r}]; "
    "file[{name!r}] = x`. h5repack keeps such links."
)


def _listed(file: Any, view: library.FileView) -> dict[str, Leaf]:
    """The leaf of every dataset of h5py's `FileID`, in natural order. Raises what h5py raises, too."""
    from h5py import h5d, h5g, h5l, h5o

    leaves: dict[str, Leaf] = {}
    root = h5g.open(file, b"/")
    groups = {h5o.get_info(root).addr: ""}  # paths by the addresses of groups in the file
    stack = [(root, "")]
    while stack:
        group, above = stack.pop()
        links: list[bytes] = []
        group.links.iterate(links.append)
        for raw in links:
            try:
                path = f"{above}{raw.decode('utf-8')}"
            except UnicodeDecodeError as error:
                where = f"the name {raw[:200]!r} in `{shown(above or SEPARATOR)}`"
                raise damaged(f"{where} is not valid UTF-8", "Rename it.") from error
            kind = group.links.get_info(raw).type
            if kind == h5l.TYPE_SOFT:
                raise flawed(path, "is a soft link, which is not read", HARD_LINK.format(name=path[:200]))
            if kind != h5l.TYPE_HARD:
                raise flawed(path, "is a link to another file", MERGE)
            try:
                with with_path(f"`{path[:200]}`"):
                    member = h5o.open(group, raw)
                    if isinstance(member, h5d.DatasetID):
                        leaves[path] = describe_dataset(member, Key.parse(path), view)
            except library.LIBRARY_ERRORS as error:
                raise damaged(f"`{shown(path[:200])}`: {library.library_text(error)}") from error
            if isinstance(member, h5g.GroupID):
                if path.count(SEPARATOR) >= MOST_LEVELS:
                    raise flawed(path, f"lies in more than {MOST_LEVELS} groups")
                before = groups.setdefault(h5o.get_info(member).addr, path)
                if before != path:
                    what = f"is the same group as `{before[:200]}`" if before else "is the root group"
                    raise flawed(path, what, "A group with two paths is not read; remove one of them.")
                stack.append((member, f"{path}{SEPARATOR}"))
    return {path: leaves[path] for path in sorted(leaves, key=natural_order)}


MOST_BYTES = 64 << 20
"""Bytes of all members of an archive but the weights that are taken over at most."""
ALONE = "Write the weights alone, as NAME.weights.h5, which `model.load_weights` loads."


def read(path: str, selection: Selection) -> Listing:
    """Open an HDF5 file or Keras archive, or the only one in a directory. Raises MissingLibraryError."""
    name = os.path.join(*NAMES.file_of(path))
    library.import_h5py(name)
    with opened(name) as file:
        view = _view(file)
    with with_path(name):
        library.check_superblock(view)
    with library.opened_hdf5(view) as h5, with_path(name):
        leaves = _listed(h5, view)
        metadata = root_attributes(h5, view)
    details = SourceDetails(model_files=partial(_model_files, name, file.stat))
    return Listing(leaves, {name: file.stat}, metadata, decode=decode_region, details=details)


def _view(file: OpenFile) -> library.FileView:
    """The HDF5 file: a member of an archive, or a file from its signature on, where its addresses begin."""
    if not is_archive(file):
        start = signature_at(file, file.stat.size) or 0
        return library.FileView(file.path, file.stat, start, file.stat.size - start)
    archive = read_archive(file)
    if WEIGHTS not in archive:
        raise wrong(file, f"it has no member `{WEIGHTS}`", "Save the model with Keras 3 in one file.")
    member = archive[WEIGHTS]
    if member.deflated:
        raise wrong(file, f"`{WEIGHTS}` is compressed in the archive", "Unpack it and name that file.")
    return library.FileView(file.path, file.stat, member.offset, member.size)


def _model_files(name: str, stat: FileStat) -> Mapping[str, bytes]:
    """Members of an archive beside the weights. Raises UsageError for what cannot be taken over."""
    with opened(name, stat) as file:
        if not is_archive(file):
            return {}
        members = [member for member in read_archive(file).values() if member.name != WEIGHTS]
        total = sum(member.size for member in members)
        if total > MOST_BYTES:
            what = f"{shown(name)} holds {bytes_text(total)} beside its weights"
            most = f"{bytes_text(MOST_BYTES)} is the most that is taken over into another archive"
            raise UsageError(f"{what}, and {most}", hint=ALONE)
        for member in members:
            parts = member.name.split("/")
            if {"", ".", ".."} & set(parts) or set(member.name) & set("\\\0") or ":" in parts[0]:
                what = f"{shown(name)} has a member `{shown(member.name[:200])}`, whose name leads out of it"
                raise UsageError(what, hint=ALONE)
        return {member.name: read_member(file, member, MOST_BYTES) for member in members}
