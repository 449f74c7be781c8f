"""Archives of `torch.save`, and the leaves in them: key paths from nested containers, manifests from tensors.

Tensors are views of a storage: some are one dense block, and those that are not have a reader.

Source of the format: torch.serialization and caffe2/serialize (2.13). An archive PREFIX/… of `data.pkl`,
`data/KEY` for each storage, `byteorder`, `version`, and members that are not needed. None is compressed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import Problem, SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, contiguous, raw_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.chunk_reading import checked, stored_dtype
from ckpt_surgery.formats.registry import Listing
from ckpt_surgery.formats.shared.limits import check_shape
from ckpt_surgery.formats.shared.torch.globals import EXPLAINED, RESAVE, Storage, Tensor, what_is
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.formats.shared.zip.members import Archive, ZipMember, read_member
from ckpt_surgery.storage.failures import damaged, with_key
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened, read_strided

PICKLE = "data.pkl"
MOST_PICKLE_BYTES = 2**27


@dataclass(frozen=True)
class Saved:
    """The pickle of an archive, and where the storages are that it names."""

    pickle: bytes
    archive: Archive
    prefix: str
    """The prefix of the names of all members, with its slash."""
    start: int = 0
    """Offset of the archive in the file that it lies in."""

    def offset_of(self, storage: Storage) -> int:
        """The offset of a storage in the file. Raises SourceError unless its size is that in the pickle."""
        name = f"{self.prefix}data/{storage.key}"
        if name not in self.archive:
            raise damaged(f"is in `{shown(name[:200])}`, which is missing")
        member = self.archive[name]
        _check_stored(member)
        if member.size != storage.nbytes:
            what = f"is in `{shown(name[:200])}`, which has {member.size} bytes in place of {storage.nbytes}"
            raise damaged(what)
        return self.start + member.offset


def read_saved(file: OpenFile, archive: Archive) -> Saved:
    """The pickle of an archive, which is not run."""
    pickles = [name for name in archive if name.count("/") == 1 and name.endswith("/" + PICKLE)]
    if len(pickles) != 1:
        what = f"it holds {len(pickles)} files {PICKLE} where one belongs"
        raise SourceError(what, hint="It is damaged, or a zip archive of something else.")
    prefix = pickles[0].removesuffix(PICKLE)
    if f"{prefix}constants.pkl" in archive:
        raise SourceError("it is TorchScript, a program with its tensors", hint=EXPLAINED["__torch__."])
    # Files are little endian where they do not record their byte order.
    name = f"{prefix}byteorder"
    order = _read(file, archive[name], 16) if name in archive else b"little"
    if order != b"little":
        what = f"its byte order is {shown(order.decode('latin-1'))}; only little endian is read"
        raise SourceError(what, hint="Load and save it with torch on a little-endian machine.")
    return Saved(_read(file, archive[pickles[0]], MOST_PICKLE_BYTES), archive, prefix)


def _read(file: OpenFile, member: ZipMember, most: int) -> bytes:
    """All of a member, unchecked if its CRC-32 is 0: torch can be set to write no checksums."""
    _check_stored(member)
    if member.crc or member.size > most:
        return read_member(file, member, most)
    return file.read(member.offset, member.size)


def _check_stored(member: ZipMember) -> None:
    if member.deflated:
        what = f"{member.called} is compressed, which torch never does"
        raise SourceError(what, hint="Unpack the archive, and zip it again without compression.")


NODE_SLACK = 4000
"""How many more leaves and containers than bytes a pickle can have: they can be shared, but rarely are."""
MOST_DEPTH = 64
"""Containers nested deeper than this, for example within themselves, are refused."""
MOST_PROBLEMS = 5
"""Limit on the unreadable leaves that one error reports."""
TEXT_SLACK, TEXT_GAIN = 2**20, 8
"""Limit on the characters of all keys together: a fixed number, and a number per byte of the pickle."""

ROOT = Key((), ())
"""The key of a whole checkpoint."""


@dataclass(frozen=True, slots=True)
class StridedView:
    """Reads an array that is not a dense block: a part of one, or with repetitions."""

    file: str
    """Path of the file."""
    offset: int
    """Offset of the first element in the file, in bytes."""
    strides: Shape
    """Bytes from an element to the next along each axis; 0 where an axis repeats the same elements."""
    dtype: np.dtype[Any]

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region, in C order. Memory: the region, and at most SPAN_BYTES besides."""
        block = np.empty(region.shape, stored_dtype(self.dtype))
        if block.size:
            start = sum(a * stride for a, stride in zip(region.starts, self.strides, strict=True))
            with opened(self.file, files.get(self.file)) as file:
                read_strided(file, self.offset + start, self.strides, block)
        return checked(block, self.dtype)


def dense_order(shape: Shape, strides: Sequence[int]) -> Shape | None:
    """The axes from the outermost to the innermost if the elements fill one block in that order.

    C order where it fits, because axes of length 1 fit anywhere. None where there are gaps or repetitions.
    `strides` count elements.
    """
    axes = tuple(range(len(shape)))
    if 0 in shape:
        return axes
    long = [axis for axis in axes if shape[axis] > 1]
    nested, step = sorted(long, key=lambda axis: -strides[axis]), 1
    for axis in reversed(nested):
        if strides[axis] != step:
            return None
        step *= shape[axis]
    return axes if nested == long else (*(axis for axis in axes if shape[axis] == 1), *nested)


def list_leaves(saved: Saved, file: str, name: str, at: Key = ROOT) -> Listing:
    """The leaves of a pickled value, and the readers of those without a manifest.

    `file`: path of the file that the archive lies in. `name`: the key of a whole checkpoint that is not a
    container. `at`: the key of the value. Raises SourceError with the keys of leaves that cannot be read,
    MOST_PROBLEMS at most.
    """
    leaves: dict[str, Leaf] = {}
    views: dict[str, StridedView] = {}
    problems: list[Problem] = []
    room = TEXT_SLACK + TEXT_GAIN * len(saved.pickle)
    # A leaf can take a thousand times the memory of its pickle.
    most = min(2**18, NODE_SLACK + len(saved.pickle))
    for names, sequences, value in _walk((at.names, at.sequences, load(saved.pickle)), name, most):
        key = Key(names, sequences)
        room -= len(key.text)
        if room < 0:
            raise damaged("its keys are longer together than its size allows")
        try:
            if key.text in leaves:
                raise SourceError("two leaves have this key", hint="Rename one of them with torch.")
            leaves[key.text] = _leaf(key, value, saved, file, views)
        except SourceError as error:
            problems += with_key(key, error).problems
            if len(problems) >= MOST_PROBLEMS:
                break
    if problems:
        raise SourceError(*problems)
    return Listing(leaves, readers=views)


WalkedValue = tuple[tuple[str, ...], tuple[bool, ...], object]
"""The components of a key, which of them are indices, and a value."""


def _walk(root: WalkedValue, name: str, most: int) -> Iterator[WalkedValue]:
    """Values that are not containers with members, in order: `most` at most."""
    pending: list[WalkedValue] = [root]
    count = 0
    while pending:
        names, sequences, value = pending.pop()
        if not isinstance(value, dict | list | tuple) or (not value and names):
            yield names or (name,), sequences or (False,), value
            continue
        if len(names) == MOST_DEPTH:
            raise damaged(f"its containers are nested more than {MOST_DEPTH} deep", RESAVE)
        count += len(value)
        if count > most:
            raise damaged(f"it has more than {most} leaves and containers", RESAVE)
        indexed = not isinstance(value, dict)
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        children = [((*names, str(part)), (*sequences, indexed), child) for part, child in inner]
        pending += children[::-1]


def _leaf(key: Key, value: object, saved: Saved, file: str, views: dict[str, StridedView]) -> Leaf:
    """The leaf of a value; its view, if any, goes into `views`. Raises SourceError without the key."""
    check_unicode(key.text)
    match value:
        case Tensor():
            spec, stored = ArraySpec(value.shape, value.dtype), stored_tensor(value, saved, file)
            if isinstance(stored, Manifest):
                return Leaf(key, LeafKind.ARRAY, spec, stored)
            views[key.text] = stored
            return Leaf(key, LeafKind.ARRAY, spec)
        case bool() | int() | float():
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                raise damaged(f"is an integer of {value.bit_length()} bits; 64 is the limit", RESAVE)
            number = np.asarray(value)  # bool, int64 (uint64 where it must be) or float64
            spec, data = ArraySpec((), number.dtype), number.tobytes()
            manifest = Manifest(spec, (), raw_codec(0), {(): Chunk("", 0, len(data), data)})
            return Leaf(key, LeafKind.SCALAR, spec, manifest)
        case str():
            check_unicode(value)
            return Leaf(key, LeafKind.STRING, string=value)
        case None | dict() | list() | tuple():
            return Leaf(key, LeafKind.EMPTY, empty=_EMPTY[type(value)])
    raise damaged(f"is {what_is(value)}, which cannot be a leaf of a checkpoint", RESAVE)


_EMPTY = {type(None): "None", dict: "Dict", list: "List", tuple: "Tuple"}


def check_unicode(text: str) -> None:
    """Raise SourceError for a text that cannot be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise damaged("has half of a surrogate pair, which is not a character") from error


def stored_tensor(tensor: Tensor, saved: Saved, file: str) -> Manifest | StridedView:
    """Place of a tensor's elements in `file`: a manifest where they are one block, in any order of axes."""
    spec, size = ArraySpec(tensor.shape, tensor.dtype), tensor.dtype.itemsize
    start = saved.offset_of(tensor.storage) + tensor.offset * size
    if tensor.pending:
        resolved = "".join(f".resolve_{name}()" for name in tensor.pending)
        what = f"is stored without its last operation: {shown(', '.join(tensor.pending))}"
        raise SourceError(what, hint=f"Save `tensor{shown(resolved)}` instead.")
    check_shape(spec.shape, size)
    reach = sum((n - 1) * stride for n, stride in zip(spec.shape, tensor.strides, strict=True)) + 1
    if spec.size and (tensor.offset + reach) * size > tensor.storage.nbytes:
        raise damaged(
            f"is {spec} from element {tensor.offset} on, {reach} elements from its first to its last, "
            f"in a storage of {tensor.storage.nbytes} bytes"
        )
    order = dense_order(spec.shape, tensor.strides)
    if order is None:
        return StridedView(file, start, tuple(s * size for s in tensor.strides), tensor.dtype)
    return contiguous(spec, file, start, replace(raw_codec(spec.ndim), permutation=order))
