"""Reading PyTorch's zip files, `.pt`, `.pth`, `.bin`, `.ckpt`: one, or the shards of a Hugging Face model.

Source of the format: torch.serialization and caffe2/serialize (2.13). An archive PREFIX/… of `data.pkl`,
`data/KEY` for each storage, `byteorder`, `version`, and members that are not needed. None is compressed.
The conventions for several files are those of transformers and diffusers.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.formats.shared.raw_arrays import RawArraysSource
from ckpt_surgery.formats.shared.single_file import file_of
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.zip_inflating import read_member
from ckpt_surgery.formats.shared.zip_layout import LOCAL
from ckpt_surgery.formats.shared.zip_members import Archive, Member, read_archive
from ckpt_surgery.formats.torch.detect import INDEX_SUFFIX, chosen
from ckpt_surgery.formats.torch.globals import Storage
from ckpt_surgery.formats.torch.tree import TorchLeaves, list_leaves
from ckpt_surgery.formats.torch.unpickler import load
from ckpt_surgery.formats.torch.views import View, read_view
from ckpt_surgery.storage.failures import DAMAGED, about, named
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened, stat_file

PICKLE = "data.pkl"
MOST_PICKLE_BYTES = 2**27


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
    """The leaves of a file, from the archive's directory and the pickle; runs nothing. Raises SourceError."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        if file.read(0, min(len(LOCAL), file.stat.size)) != LOCAL:
            raise _no_archive(path)
        archive = read_archive(file)
        with about(path):
            prefix = _prefix(archive)
            _check_byte_order(file, archive, prefix)
            data = _read(file, archive[prefix + PICKLE], MOST_PICKLE_BYTES)
            offset_of, stem = _places(archive, prefix), os.path.splitext(name)[0]
            listing = list_leaves(load(data), path, offset_of, stem, len(data))
            return TorchFile(name, path, file.stat, listing)


def _no_archive(path: str) -> SourceError:
    from ckpt_surgery.formats.recognition import recognized

    other = recognized(path)
    if other is None:
        flaw = "does not begin as PyTorch's files do, which are zip archives"
        return SourceError(f"{shown(path)} {flaw}", hint=DAMAGED)
    return SourceError(f"{shown(path)}: this looks like {other.what}", hint=other.hint)


def _prefix(archive: Archive) -> str:
    """The prefix of the names of all members, with its slash. Raises SourceError."""
    pickles = [m.name for m in archive.members if m.name.count("/") == 1 and m.name.endswith("/" + PICKLE)]
    if len(pickles) != 1:
        raise SourceError(
            f"it holds {len(pickles)} files {PICKLE} where one belongs",
            hint="It is damaged, or a zip archive of something else.",
        )
    prefix = pickles[0].removesuffix(PICKLE)
    if f"{prefix}constants.pkl" in archive:
        raise SourceError(
            "it is TorchScript, a program with its tensors",
            hint="Save the tensors alone: `torch.save(torch.jit.load(path).state_dict(), other_path)`.",
        )
    return prefix


def _check_byte_order(file: OpenFile, archive: Archive, prefix: str) -> None:
    """Raise SourceError unless a file is little endian, as it is where it does not record its byte order."""
    name = f"{prefix}byteorder"
    found = _read(file, archive[name], 16) if name in archive else b"little"
    if found != b"little":
        raise SourceError(
            f"its byte order is {shown(found.decode('latin-1'))}; only little endian is read",
            hint="Load and save it with torch on a little-endian machine.",
        )


def _read(file: OpenFile, member: Member, most: int) -> bytes:
    """All of a member, unchecked if its CRC-32 is 0: torch can be set to write no checksums."""
    _check_stored(member)
    if member.crc or member.size > most:
        return read_member(file, member, most)
    return file.read(member.offset, member.size)


def _check_stored(member: Member) -> None:
    if member.deflated:
        raise SourceError(
            f"`{shown(member.name[:200])}` is compressed, which torch never does",
            hint="Unpack the archive, and zip it again without compression.",
        )


def _places(archive: Archive, prefix: str) -> Callable[[Storage], int]:
    """A function to the offset of a storage. It raises SourceError unless the size is that in the pickle."""

    def offset_of(storage: Storage) -> int:
        name = f"{prefix}data/{storage.key}"
        if name not in archive:
            raise SourceError(f"is in `{shown(name[:200])}`, which is missing", hint=DAMAGED)
        member = archive[name]
        _check_stored(member)
        if member.size != storage.nbytes:
            raise SourceError(
                f"is in `{shown(name[:200])}`, which has {member.size} bytes in place of {storage.nbytes}",
                hint=DAMAGED,
            )
        return member.offset

    return offset_of


# --- the source -------------------------------------------------------------------------------------------


class TorchSource(RawArraysSource):
    """A PyTorch checkpoint, opened for reading. Safe to use from several threads."""

    def __init__(self, path: str, index: Mapping[str, FileStat], parts: Sequence[TorchFile]):
        leaves = {text: leaf for part in parts for text, leaf in part.listing.leaves.items()}
        files = {**index, **{part.path: part.stat for part in parts}}
        super().__init__(path, "torch", leaves, files, {})
        self._views: Mapping[str, View] = {
            text: view for part in parts for text, view in part.listing.views.items()
        }

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        if leaf.manifest is not None:
            return super().read(leaf, region)
        assert leaf.spec is not None
        view = self._views[leaf.key.text]
        try:
            with opened(view.file, self._files[view.file]) as file:
                return read_view(file, view, leaf.spec, region)
        except SourceError as error:
            raise named(leaf.key, error) from error


def open_torch(path: str, selection: Selection) -> TorchSource:
    """Open a file, an index, or a directory that holds one of them.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item.
    """
    check_no_choice(f"{shown(path)} is a PyTorch checkpoint, which has", selection.step, selection.item)
    directory, name = file_of(path, chosen)
    if not name.endswith(INDEX_SUFFIX):
        return TorchSource(path, {}, [read_file(directory, name)])
    index = os.path.join(directory, name)
    files, _ = read_index(index)
    parts = [read_file(directory, shard) for shard in shard_names(directory, files)]
    check_shards(directory, files, {part.name: part.listing.leaves for part in parts})
    return TorchSource(path, {index: stat_file(index)}, parts)
