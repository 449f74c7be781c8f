"""Reading PyTorch's distributed checkpoints, which `torch.distributed.checkpoint.save` writes.

Source of the format: torch.distributed.checkpoint (2.2 to 2.13). `.metadata` is a pickle that says which
chunks every tensor has, and where they are: each is what `torch.save` writes, an archive within a file. What
is not a tensor is such an archive too.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.dcp.contents import Contents, Item, items_by_file, read_contents
from ckpt_surgery.formats.dcp.detect import METADATA
from ckpt_surgery.formats.dcp.index import Stored, StoredObject, StoredTensor, read_index
from ckpt_surgery.formats.dcp.pieces import Piece, Pieces, on_grid
from ckpt_surgery.formats.dcp.vocabulary import VOCABULARY
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.raw_arrays import Opaque, RawArraysSource
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.torch.archive import MOST_PICKLE_BYTES
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.storage.failures import DAMAGED, about, named
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_directory, real_path
from ckpt_surgery.storage.reading import opened, stat_file

UNFINISHED = (
    "It is written last: the save was not finished, or the copy is incomplete. "
    "If each rank wrote metadata of its own, save again with `use_collectives=True`."
)


@dataclass
class Listing:
    """The leaves of a checkpoint, and what reading them takes, by the text of their keys."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    pieces: dict[str, Pieces] = field(default_factory=dict)
    """Tensors without a manifest."""
    opaque: dict[str, Opaque] = field(default_factory=dict)
    """Objects that are not read."""

    def add(self, leaf: Leaf, pieces: Pieces | None = None, opaque: Opaque | None = None) -> None:
        """Add a leaf. Raises SourceError where another one has its key."""
        text = leaf.key.text
        if text in self.leaves:
            flaw = SourceError("two leaves have this key", hint="Rename one of them with torch.")
            raise named(leaf.key, flaw)
        self.leaves[text] = leaf
        if pieces is not None:
            self.pieces[text] = pieces
        if opaque is not None:
            self.opaque[text] = opaque


class DcpSource(RawArraysSource):
    """A distributed checkpoint of PyTorch, opened for reading. Safe to use from several threads.

    Objects other than numbers, texts, tensors and containers of those are listed with the dtype `object`, and
    reading them is an error.
    """

    def __init__(self, path: str, listing: Listing, files: Mapping[str, FileStat]):
        """`files`: size and time of every file, by path."""
        super().__init__(path, "dcp", listing.leaves, files, {}, opaque=listing.opaque)
        self._pieces = listing.pieces

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        pieces = self._pieces.get(leaf.key.text)
        if pieces is None:
            return super().read(leaf, region)
        try:
            return pieces.read(region, self._files)
        except SourceError as error:
            raise named(leaf.key, error) from error


def open_dcp(path: str, selection: Selection) -> DcpSource:
    """Open a directory. Reads its metadata, and of the data files what lies around the tensors.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item.
    """
    check_no_choice(f"{shown(path)} is a distributed checkpoint, which has", selection.step, selection.item)
    if not is_directory(path):
        raise SourceError(
            f"{shown(path)} is not a directory, as distributed checkpoints are", hint="Name its directory."
        )
    root, metadata = real_path(path), os.path.join(path, METADATA)
    if not has_entry(metadata):
        raise SourceError(f"{shown(metadata)} does not exist", hint=UNFINISHED)
    check_link(metadata, root)
    stat, index = _read_metadata(metadata)
    items = items_by_file(index)
    paths = {name: os.path.join(path, name) for name in items}
    files = {name: (paths[name], _stat(paths[name], root, items[name])) for name in items}
    listing = _listed(index, read_contents(index, items, files))
    return DcpSource(path, listing, {metadata: stat, **dict(files.values())})


def _read_metadata(path: str) -> tuple[FileStat, list[Stored]]:
    """Size and time of the metadata, and what it says. Raises SourceError."""
    with opened(path) as file:
        if file.stat.size > MOST_PICKLE_BYTES:
            raise SourceError(
                f"{shown(path)} has {file.stat.size} bytes; {MOST_PICKLE_BYTES} is the limit", hint=DAMAGED
            )
        data = file.read(0, file.stat.size)
    with about(os.path.dirname(path)):
        root = load(data, VOCABULARY, METADATA)
    with about(path):
        return file.stat, read_index(root, len(data))


def _stat(path: str, root: str, items: Sequence[Item]) -> FileStat:
    """Size and time of a data file. Raises SourceError for a link that leaves, and items beyond its end."""
    check_link(path, root)
    stat = stat_file(path)
    last = max((item.place for item in items), key=lambda place: place.offset + place.length)
    if last.offset + last.length > stat.size:
        raise SourceError(
            f"{shown(path)} has {stat.size} bytes, but {last.length} belong at byte {last.offset}",
            hint=DAMAGED,
        )
    return stat


def _listed(index: Sequence[Stored], contents: Contents) -> Listing:
    """All leaves, in the order of the index."""
    listing = Listing()
    for number, entry in enumerate(index):
        if isinstance(entry, StoredObject):
            _add_object(listing, entry, contents, number)
        else:
            _add_tensor(
                listing, entry, [contents.pieces[number, chunk] for chunk in range(len(entry.chunks))]
            )
    return listing


def _add_tensor(listing: Listing, entry: StoredTensor, pieces: Sequence[Piece]) -> None:
    manifest = on_grid(entry.spec, pieces) if entry.spec.size else contiguous(entry.spec, "", 0)
    leaf = Leaf(entry.key, LeafKind.ARRAY, entry.spec, manifest)
    listing.add(leaf, None if manifest else Pieces(entry.spec, tuple(pieces)))


def _add_object(listing: Listing, entry: StoredObject, contents: Contents, number: int) -> None:
    found = contents.objects[number]
    if isinstance(found, Opaque):
        listing.add(Leaf(entry.key, LeafKind.ARRAY, ArraySpec((), np.dtype(object))), opaque=found)
        return
    for text, leaf in found.leaves.items():
        view = found.views.get(text)
        spec = leaf.spec
        pieces = None
        if view is not None and spec is not None:
            pieces = Pieces(spec, (Piece(Region.whole(spec.shape), view),))
        listing.add(leaf, pieces)
