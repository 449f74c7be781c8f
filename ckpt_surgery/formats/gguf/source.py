"""Reading GGUF: one file, or all files of a split model."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Manifest, contiguous, quantized_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.gguf import NAMES, SHARD
from ckpt_surgery.formats.gguf.blocks import BlockChunks, grid_of, read_blocks, unreadable
from ckpt_surgery.formats.gguf.header import GgufHeader, GgufTensor, read_header
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.listing import check_link, names_in, real_path
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.views import prefetch

NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"
"""Names of the entries about the files of a split model."""

_codec = cache(quantized_codec)


def read(path: str, selection: Selection) -> Listing:
    """Open a file, the first of a split model's files, or a directory with one model."""
    directory, name = NAMES.file_of(path)
    match = SHARD.search(name)
    number, count = (1, 1) if match is None else (int(match[1]), int(match[2]))

    def name_of(number: int) -> str:
        return f"{name[: match.start()]}-{number:05d}-of-{count:05d}.gguf" if match else name

    if number != 1:
        what = f"{shown(path)} is file {number} of a split model"
        raise SourceError(what, hint=f"Name its first, {name_of(1)}.")
    files = [_read_part(directory, name, 1, count)]
    present = set(names_in(directory or ".")) if count > 1 else set()
    others, root = [], real_path(directory)
    for other in map(name_of, range(2, count + 1)):
        if other not in present:
            missing = shown(os.path.join(directory, other))
            raise damaged(f"{missing} is missing, one of the model's {count} files")
        check_link(os.path.join(directory, other), root)
        others.append(other)
    prefetch(directory, others)
    files += [_read_part(directory, other, i, count) for i, other in enumerate(others, 2)]
    unread, leaves = cache(unreadable), dict[str, Leaf]()
    for file in files:
        for tensor in file.tensors:
            if tensor.name in leaves:
                paths = (f.path for f in files if any(t.name == tensor.name for t in f.tensors))
                raise damaged(f"`{shown(tensor.name[:200])}` is in {' and in '.join(map(shown, paths))}")
            leaves[tensor.name] = _leaf(file.path, tensor, unread)
    metadata = files[0].metadata
    with with_path(files[0].path):
        tensors = _number(metadata, TENSORS, len(leaves))
        if tensors != len(leaves):
            raise damaged(f"it says that its model has {tensors} tensors, and they are {len(leaves)}")
    stats = {file.path: file.stat for file in files}
    about = {name: value for name, value in metadata.items() if not name.startswith("split.")}
    return Listing(leaves, stats, about, decode=read_blocks)


def _read_part(directory: str, name: str, number: int, count: int) -> GgufHeader:
    """A file, which by its name is that one of so many."""
    path = os.path.join(directory, name)
    with opened(path) as opened_file, with_path(path):
        file = read_header(opened_file)
        recorded = _number(file.metadata, NUMBER, 0) + 1
        of = _number(file.metadata, COUNT, 1)
        if (recorded, of) != (number, count):
            raise SourceError(
                f"by its metadata it is file {recorded} of {of}, and its name does not say that",
                hint="The files of a split model are called NAME-00001-of-00003.gguf and so on: "
                "give them these names, in one directory.",
            )
    return file


def _number(metadata: Mapping[str, Any], name: str, default: int) -> int:
    value = metadata.get(name, default)
    if type(value) is not int:
        raise damaged(f"its {name} is {shown(repr(value)[:100])}, no number")
    return value


def _leaf(path: str, tensor: GgufTensor, unread: Callable[[str], Unreadable | None]) -> Leaf:
    """The leaf of a tensor. Quantized ones are listed as float32, those that cannot be read too."""
    key, spec, type = Key.parse(tensor.name), tensor.spec, tensor.type
    if not type.quantized:
        return Leaf(key, LeafKind.ARRAY, spec, contiguous(spec, path, tensor.offset))
    grid = grid_of(spec.shape, type.length)
    chunks = BlockChunks(path, tensor.offset, spec.shape, grid, type)
    manifest = Manifest(spec, grid, _codec(type.name, spec.ndim), chunks)
    return Leaf(key, LeafKind.ARRAY, spec, manifest, unreadable=unread(type.name))
