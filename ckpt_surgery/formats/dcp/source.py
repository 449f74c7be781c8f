"""Reading PyTorch's distributed checkpoints, which `torch.distributed.checkpoint.save` writes.

Source of the format: torch.distributed.checkpoint (2.2 to 2.13). `.metadata` is a pickle that says which
chunks every tensor has, and where they are: each is what `torch.save` writes, an archive within a file. What
is not a tensor is such an archive too.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.dcp.contents import DcpContents, Item, items_by_file, read_contents
from ckpt_surgery.formats.dcp.detect import DATA_SUFFIX, METADATA
from ckpt_surgery.formats.dcp.index import Stored, StoredTensor, read_index
from ckpt_surgery.formats.dcp.vocabulary import VOCABULARY
from ckpt_surgery.formats.registry import Listing, Reader, Selection
from ckpt_surgery.formats.shared.boxes import Boxes, on_grid
from ckpt_surgery.formats.shared.torch.archive import MOST_PICKLE_BYTES
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.storage.failures import damaged, with_key, with_path
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_directory, real_path
from ckpt_surgery.storage.reading import opened, stat_within

UNFINISHED = (
    "It is written last: the save was not finished, or the copy is incomplete. "
    "If each rank wrote metadata of its own, save again with `use_collectives=True`."
)


def read(path: str, selection: Selection) -> Listing:
    """Open a directory. Reads its metadata, and of the data files what lies around the tensors."""
    if not is_directory(path):
        raise SourceError(
            f"{shown(path)} is not a directory, as distributed checkpoints are", hint="Name its directory."
        )
    metadata = os.path.join(path, METADATA)
    if not has_entry(metadata):
        raise SourceError(f"{shown(metadata)} does not exist", hint=UNFINISHED)
    check_link(metadata, real_path(path))
    stat, index = _read_metadata(metadata)
    items = items_by_file(index)
    files = {name: (os.path.join(path, name), _stat(path, name, items[name])) for name in items}
    return _listing(index, read_contents(index, items, files), {metadata: stat, **dict(files.values())})


def _read_metadata(path: str) -> tuple[FileStat, list[Stored]]:
    """Size and time of the metadata, and what it says."""
    with opened(path) as file:
        if file.stat.size > MOST_PICKLE_BYTES:
            raise damaged(f"{shown(path)} has {file.stat.size} bytes; {MOST_PICKLE_BYTES} is the limit")
        data = file.read(0, file.stat.size)
    with with_path(os.path.dirname(path)):
        root = load(data, VOCABULARY, METADATA)
    with with_path(path):
        return file.stat, read_index(root, len(data))


def _stat(directory: str, name: str, items: Sequence[Item]) -> FileStat:
    """Size and time of a data file. Raises SourceError for a link that leaves, and items beyond its end."""
    path, stat = os.path.join(directory, name), stat_within(directory, name)
    last = max((item.place for item in items), key=lambda place: place.offset + place.length)
    if last.offset + last.length > stat.size:
        raise damaged(f"{shown(path)} has {stat.size} bytes, but {last.length} belong at byte {last.offset}")
    return stat


def _listing(index: Sequence[Stored], contents: DcpContents, files: Mapping[str, FileStat]) -> Listing:
    """All leaves, in the order of the index. `files`: size and time of every file, by path.

    Objects other than numbers, texts, tensors and containers of those are listed with the dtype `object`, and
    cannot be read. Raises SourceError where two leaves have one key.
    """
    leaves: dict[str, Leaf] = {}
    readers: dict[str, Reader] = {}
    for number, entry in enumerate(index):
        for leaf, reader in _leaves(entry, contents, number):
            text = leaf.key.text
            if text in leaves:
                raise with_key(
                    leaf.key, SourceError("two leaves have this key", hint="Rename one of them with torch.")
                )
            leaves[text] = leaf
            if reader is not None:
                readers[text] = reader
    return Listing(leaves, files, readers=readers)


def _leaves(entry: Stored, contents: DcpContents, number: int) -> Iterator[tuple[Leaf, Reader | None]]:
    """The leaves of an entry, and what reads those without a manifest. `number`: its place in the index."""
    if isinstance(entry, StoredTensor):
        boxes = [contents.boxes[number, chunk] for chunk in range(len(entry.chunks))]
        manifest = on_grid(entry.spec, boxes) if entry.spec.size else contiguous(entry.spec, "", 0)
        reader = Boxes(entry.spec, boxes) if manifest is None else None
        yield Leaf(entry.key, LeafKind.ARRAY, entry.spec, manifest), reader
        return
    found = contents.objects[number]
    if isinstance(found, Unreadable):
        spec = ArraySpec((), np.dtype(object))
        yield Leaf(entry.key, LeafKind.ARRAY, spec, unreadable=found), None
        return
    for text, leaf in found.leaves.items():
        yield leaf, found.readers.get(text)


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Files that no rank writes, out of `names`: relative paths of all files in the directory.

    `--overwrite` refuses to delete them. A rank writes a data file even if nothing is in it.
    """
    return [name for name in names if name != METADATA and ("/" in name or not name.endswith(DATA_SUFFIX))]
