"""Reading PyTorch's zip files, `.pt`, `.pth`, `.bin`, `.ckpt`: one, or the shards of a Hugging Face model.

What one file holds is in `torch_archive`. The conventions for several files are those of transformers and
diffusers.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.formats.shared.torch.archive import read_saved
from ckpt_surgery.formats.shared.torch.tree import TorchLeaves, list_leaves
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.formats.shared.zip.layout import LOCAL
from ckpt_surgery.formats.shared.zip.members import read_archive
from ckpt_surgery.formats.torch.detect import INDEX_SUFFIX, NAMES
from ckpt_surgery.storage.failures import DAMAGED, with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import opened, stat_file

# --- one file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TorchFile:
    """One file and the leaves that its pickle describes."""

    name: str
    """Name in the checkpoint's directory."""
    path: str
    stat: FileStat
    listing: TorchLeaves


def read_file(directory: str, name: str) -> TorchFile:
    """The leaves of a file, from the archive's directory and the pickle; runs nothing."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        if file.read(0, min(len(LOCAL), file.stat.size)) != LOCAL:
            raise _no_archive(path)
        archive = read_archive(file)
        with with_path(path):
            saved, stem = read_saved(file, archive), os.path.splitext(name)[0]
            listing = list_leaves(load(saved.pickle), path, saved.offset_of, stem, len(saved.pickle))
            return TorchFile(name, path, file.stat, listing)


def _no_archive(path: str) -> SourceError:
    from ckpt_surgery.formats.recognition import recognized

    other = recognized(path)
    if other is None:
        flaw = "does not begin as PyTorch's files do, which are zip archives"
        return SourceError(f"{shown(path)} {flaw}", hint=DAMAGED)
    return SourceError(f"{shown(path)}: this looks like {other.what}", hint=other.hint)


# --- opening ----------------------------------------------------------------------------------------------


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item.
    """
    directory, name = NAMES.file_of(path)
    if not name.endswith(INDEX_SUFFIX):
        return _listing({}, [read_file(directory, name)])
    index = os.path.join(directory, name)
    files, _ = read_index(index)
    parts = [read_file(directory, shard) for shard in shard_names(directory, files)]
    check_shards(directory, files, {part.name: part.listing.leaves for part in parts})
    return _listing({index: stat_file(index)}, parts)


def _listing(index: Mapping[str, FileStat], parts: Sequence[TorchFile]) -> Listing:
    return Listing(
        leaves={text: leaf for part in parts for text, leaf in part.listing.leaves.items()},
        files={**index, **{part.path: part.stat for part in parts}},
        readers={text: view for part in parts for text, view in part.listing.views.items()},
    )
