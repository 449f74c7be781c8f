"""Reading PyTorch's zip files, `.pt`, `.pth`, `.bin`, `.ckpt`: one, or the shards of a Hugging Face model.

Source of the format: torch.serialization and caffe2/serialize (2.13). An archive PREFIX/… of `data.pkl`,
`data/KEY` for each storage, `byteorder`, `version`, and what is of no interest here. Stored, not compressed.
The conventions for several files are those of transformers and diffusers.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckpt_surgery.arrays import Leaf, Region
from ckpt_surgery.errors import SourceError, UsageError
from ckpt_surgery.formats import Selection
from ckpt_surgery.formats.byte_ranges import OpenFile, opened, stat_file
from ckpt_surgery.formats.files import DAMAGED, FileStat, about, check_link, entries, named
from ckpt_surgery.formats.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.formats.recognition import recognized
from ckpt_surgery.formats.stretches import StretchesSource
from ckpt_surgery.formats.torch_globals import Storage
from ckpt_surgery.formats.torch_tree import Listing, list_leaves
from ckpt_surgery.formats.torch_unpickler import load
from ckpt_surgery.formats.torch_views import View, read_view
from ckpt_surgery.formats.zip_members import LOCAL, Archive, Member, first_name, read_archive, read_member
from ckpt_surgery.keys import shown

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
INDEX_SUFFIX = ".bin.index.json"
MODELS = ("pytorch_model", "diffusion_pytorch_model", "adapter_model")
"""What the files of models in directories are called, before `.bin`."""
PICKLE = "data.pkl"
MOST_PICKLE_BYTES = 2**27

_PART = re.compile(
    r"(data\.pkl|data/\d+|byteorder|constants\.pkl|\.format_version|\.data/serialization_id)\Z"
)
"""What the members of a file are called, below the prefix; any of them may come first."""
_SHARD = re.compile(rf"({'|'.join(MODELS)})-\d+-of-\d+\.bin\Z")


# --- which files ------------------------------------------------------------------------------------------


def detect(path: Path) -> bool:
    """Whether a path is a PyTorch zip file, an index of such, or a model's directory; damaged ones too."""
    try:
        if path.is_dir():
            names = [entry.name for entry in entries(os.fspath(path))]
            return bool(_wholes(names)) or any(map(_SHARD.match, names))
    except SourceError:
        return False
    first = first_name(os.fspath(path))
    if first is None:
        return path.name.endswith(INDEX_SUFFIX) and path.is_file()
    _, _, part = first.partition("/")
    return bool(_PART.match(part)) or (path.suffix in SUFFIXES and not first.endswith(".npy"))


def _wholes(names: Sequence[str]) -> list[str]:
    """Of the names in a directory those that stand for all of a model: files, and indexes of shards."""
    usual = [f"{model}{end}" for model in MODELS for end in (".bin", INDEX_SUFFIX)]
    return [name for name in usual if name in names]


def _chosen(directory: str) -> str:
    """The name of the file or index in a directory that stands for all of it."""
    names = sorted(entry.name for entry in entries(directory))
    found = _wholes(names)
    if len(found) == 1:
        return found[0]
    shards = [name for name in names if _SHARD.match(name)]
    if shards and not found:
        raise SourceError(
            f"{shown(directory)} holds shards ({shown(shards[0])}, …) without their index "
            f"{MODELS[0]}{INDEX_SUFFIX}",
            hint=DAMAGED,
        )
    told = f": {', '.join(found)}" if found else f" of those that are called {MODELS[0]}.bin or the like"
    raise SourceError(
        f"{shown(directory)} holds {len(found)} PyTorch checkpoints{told}",
        hint="Name the file that is meant.",
    )


# --- one file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TorchFile:
    """One file, its pickle read."""

    name: str
    """Relative to the checkpoint's directory."""
    stat: FileStat
    listing: Listing


def read_file(directory: str, name: str) -> TorchFile:
    """What is in a file. Reads its directory and its pickle, and runs nothing. Raises SourceError."""
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
            return TorchFile(name, file.stat, list_leaves(load(data), name, offset_of, stem, len(data)))


def _no_archive(path: str) -> SourceError:
    other = recognized(path)
    if other is None:
        told = "does not begin as PyTorch's files do, which are zip archives"
        return SourceError(f"{shown(path)} {told}", hint=DAMAGED)
    return SourceError(f"{shown(path)}: this looks like {other.what}", hint=other.hint)


def _prefix(archive: Archive) -> str:
    """What the names of all members begin with, slash included."""
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
    """Files without a note of it are little endian."""
    name = f"{prefix}byteorder"
    found = _read(file, archive[name], 16) if name in archive else b"little"
    if found != b"little":
        raise SourceError(
            f"its byte order is {shown(found.decode('latin-1'))}; only little endian is read",
            hint="Load and save it with torch on a little-endian machine.",
        )


def _read(file: OpenFile, member: Member, most: int) -> bytes:
    """All of a member. `torch.serialization.set_crc32_options(False)` makes all checksums 0."""
    _check_stored(member)
    if member.crc or member.size > most:
        return read_member(file, member, most)
    return file.read(member.offset, member.size)


def _check_stored(member: Member) -> None:
    if member.deflated:
        raise SourceError(
            f"`{shown(member.name[:200])}` is compressed, as torch never stores it",
            hint="Unpack the archive, and zip it again without compression.",
        )


def _places(archive: Archive, prefix: str) -> Callable[[Storage], int]:
    """Where a storage begins in the file. Raises SourceError unless it has the size that the pickle says."""

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


class TorchSource(StretchesSource):
    """A PyTorch checkpoint, opened for reading. Safe to use from several threads."""

    def __init__(self, path: str, directory: str, index: Mapping[str, FileStat], parts: Sequence[TorchFile]):
        leaves = {text: leaf for part in parts for text, leaf in part.listing.leaves.items()}
        files = {**index, **{part.name: part.stat for part in parts}}
        super().__init__(path, "torch", directory, leaves, files, {})
        self._views: Mapping[str, View] = {
            text: view for part in parts for text, view in part.listing.views.items()
        }

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        if leaf.manifest is not None:
            return super().read(leaf, region)
        assert leaf.spec is not None
        view = self._views[leaf.key.text]
        try:
            with opened(os.path.join(self.directory, view.file), self._files[view.file]) as file:
                return read_view(file, view, leaf.spec, region)
        except SourceError as error:
            raise named(leaf.key, error) from error


def open_torch(path: str, selection: Selection) -> TorchSource:
    """Open a file, an index, or a directory that holds one of them.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item.
    """
    if selection.step is not None or selection.item is not None:
        raise UsageError(
            f"{shown(path)} is a PyTorch checkpoint, which has no steps or items",
            hint="Leave out --step and --item.",
        )
    if os.path.isdir(path):
        directory, name = path, _chosen(path)
        check_link(os.path.join(directory, name), os.path.realpath(directory))
    else:
        directory, name = os.path.split(path)
    if not name.endswith(INDEX_SUFFIX):
        return TorchSource(path, directory, {}, [read_file(directory, name)])
    files, _ = read_index(os.path.join(directory, name))
    parts = [read_file(directory, shard) for shard in shard_names(directory, files)]
    check_shards(directory, files, {part.name: part.listing.leaves for part in parts})
    return TorchSource(path, directory, {name: stat_file(os.path.join(directory, name))}, parts)
