"""Reading GGUF: one file, or all files of a split model."""

import os
from collections.abc import Sequence
from functools import cache

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Manifest, contiguous, quantized_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.gguf import NAMES, SplitFile, split_file
from ckpt_surgery.formats.gguf.blocks import BlockChunks, grid_of, read_blocks, unreadable
from ckpt_surgery.formats.gguf.header import GgufHeader, GgufTensor, read_header
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.listing import check_link, names_in, real_path
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.views import prefetch

SPLIT = "split."
"""Beginning of the names of entries about the files of a split model."""
NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"


# --- leaves -----------------------------------------------------------------------------------------------


def _leaves(files: Sequence[GgufHeader]) -> dict[str, Leaf]:
    """The leaf of every tensor. Quantized ones are listed as float32, those that cannot be read too."""
    tensors = [(file.path, tensor) for file in files for tensor in file.tensors]
    types = {tensor.type.name for _, tensor in tensors if tensor.type.quantized}
    unread = {name: unreadable(name) for name in types}
    return {tensor.name: _leaf(path, tensor, unread.get(tensor.type.name)) for path, tensor in tensors}


def _leaf(path: str, tensor: GgufTensor, unread: Unreadable | None) -> Leaf:
    key, spec, type = Key.parse(tensor.name), tensor.spec, tensor.type
    if not type.quantized:
        return Leaf(key, LeafKind.ARRAY, spec, contiguous(spec, path, tensor.offset))
    grid = grid_of(spec.shape, type.length)
    chunks = BlockChunks(path, tensor.offset, spec.shape, grid, type.length, type.nbytes)
    manifest = Manifest(spec, grid, _codec(type.name, spec.ndim), chunks)
    return Leaf(key, LeafKind.ARRAY, spec, manifest, unreadable=unread)


_codec = cache(quantized_codec)


# --- opening ----------------------------------------------------------------------------------------------


def read(path: str, selection: Selection) -> Listing:
    """Open a file, the first of a split model's files, or a directory with one model."""
    directory, name = NAMES.file_of(path)
    part = split_file(name)
    if part is not None and part.number != 1:
        raise SourceError(
            f"{shown(path)} is file {part.number} of a split model", hint=f"Name its first, {part.name(1)}."
        )
    first = _read_part(directory, name)
    files = [first, *(_others(directory, part) if part is not None else ())]
    _check_tensors(files)
    metadata = {k: v for k, v in first.metadata.items() if not k.startswith(SPLIT)}
    stats = {file.path: file.stat for file in files}
    return Listing(_leaves(files), stats, metadata, decode=read_blocks)


def _others(directory: str, part: SplitFile) -> list[GgufHeader]:
    """The other files of a split model."""
    names: list[str] = []
    present, root = set(names_in(directory or ".")), real_path(directory)
    for name in map(part.name, range(2, part.count + 1)):
        path = os.path.join(directory, name)
        if name not in present:
            raise damaged(f"{shown(path)} is missing, one of the model's {part.count} files")
        check_link(path, root)
        names.append(name)
    prefetch(directory, names)
    return [_read_part(directory, name) for name in names]


def _read_part(directory: str, name: str) -> GgufHeader:
    """A file, which is the part of a set that its name tells."""
    path, part = os.path.join(directory, name), split_file(name)
    with opened(path) as opened_file, with_path(path):
        file = read_header(opened_file)
        number, count = _counted(file, NUMBER, 0) + 1, _counted(file, COUNT, 1)
        if (number, count) != ((1, 1) if part is None else (part.number, part.count)):
            raise SourceError(
                f"by its metadata it is file {number} of {count}, and its name does not say that",
                hint="The files of a split model are called NAME-00001-of-00003.gguf and so on: "
                "give them these names, in one directory.",
            )
    return file


def _counted(file: GgufHeader, name: str, default: int) -> int:
    """A number in the metadata."""
    value = file.metadata.get(name, default)
    if type(value) is not int:
        raise damaged(f"its {name} is {shown(repr(value)[:100])}, no number")
    return value


def _check_tensors(files: Sequence[GgufHeader]) -> None:
    """Raise SourceError where two files have a tensor of one name, or tensors are missing."""
    paths: dict[str, str] = {}
    for file in files:
        for tensor in file.tensors:
            if tensor.name in paths:
                both = f"{shown(paths[tensor.name])} and in {shown(file.path)}"
                raise damaged(f"`{shown(tensor.name[:200])}` is in {both}")
            paths[tensor.name] = file.path
    with with_path(files[0].path):
        count = _counted(files[0], TENSORS, len(paths))
    if count != len(paths):
        raise damaged(
            f"{shown(files[0].path)} says that its model has {count} tensors, and they are {len(paths)}"
        )
