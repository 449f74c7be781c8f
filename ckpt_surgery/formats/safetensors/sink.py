"""Writing safetensors: headers first, then every tensor at its place, in any order and in parallel."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.safetensors.detect import (
    INDEX_NAME,
    MOST_HEADER_BYTES,
    PREFIX_BYTES,
    SINGLE_NAME,
)
from ckpt_surgery.formats.safetensors.header import (
    CODES,
    METADATA,
    PACKED,
    TensorEntry,
    header_bytes,
    splits,
    stored_bytes,
)
from ckpt_surgery.formats.safetensors.source import paired, read_packed
from ckpt_surgery.formats.shared.limits import not_held
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.regions import Place, Places, in_one_piece, put, storage_errors

SHARD_NAME = "model-{:05d}-of-{:05d}.safetensors"
ENTRY_BYTES = 120
"""A tensor's entry in a header at most, without its name and the digits of its shape."""


# --- what the format cannot hold --------------------------------------------------------------------------


def unsupported(leaves: Sequence[Leaf]) -> list[str]:
    """Why safetensors cannot hold these leaves, one sentence for each thing; empty: it can."""
    return [sentence for leaf in leaves for sentence in _of_leaf(leaf)] + [*_of_all(leaves)]


_NO_ARRAYS = {
    LeafKind.STRING: "a string",
    LeafKind.PRNG_KEY: "a PRNG key, whose type would be lost",
}


def _of_leaf(leaf: Leaf) -> Iterator[str]:
    name = f"`{shown(leaf.key.text)}`"
    if leaf.kind in _NO_ARRAYS:
        yield f"{name} is {_NO_ARRAYS[leaf.kind]}; safetensors holds plain arrays only; drop it."
    elif leaf.spec is not None:
        yield from _of_spec(name, leaf.spec)
    if leaf.key.text == METADATA:
        yield f"{name} is what safetensors calls its metadata; rename it."
    if any("\ud800" <= character <= "\udfff" for character in leaf.key.text):
        yield f"{name} is not valid Unicode, so it cannot be stored as UTF-8; rename it."


def _of_spec(name: str, spec: ArraySpec) -> Iterator[str]:
    code = CODES.get(spec.dtype)
    if code is None:
        yield f"{name} {not_held(spec.dtype, 'safetensors cannot store')}"
    if code == PACKED and not splits(spec.shape):
        yield f"{name} is {spec}: safetensors stores this type in pairs along an even last axis; cast it."


def _of_all(leaves: Sequence[Leaf]) -> Iterator[str]:
    counts = Counter(leaf.key.text for leaf in leaves)
    for text, count in counts.items():
        if count > 1:
            yield f"{count} leaves would have the name `{shown(text)}`; rename all but one."


# --- which tensor where -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FilePlan:
    """One file to be written."""

    name: str
    tensors: tuple[TensorEntry, ...]

    @property
    def data_bytes(self) -> int:
        return self.tensors[-1].stop if self.tensors else 0


def plan_files(leaves: Sequence[Leaf], shard_size: int | None, single: str = SINGLE_NAME) -> list[FilePlan]:
    """Which tensors go into which file, and where. Files are filled in the order of the leaves.

    `shard_size`: bytes of tensors per file; a larger tensor has a file to itself. None: one file.
    `single`: the file's name where there is but one.
    """
    groups: list[list[Leaf]] = [[]]
    room = shard_size
    for leaf in leaves:
        assert leaf.spec is not None
        size = stored_bytes(leaf.spec)
        if room is not None and shard_size is not None:
            if size > room and groups[-1]:
                groups.append([])
                room = shard_size
            room -= size
        groups[-1].append(leaf)
    if len(groups) == 1:
        return [FilePlan(single, _placed(groups[0]))]
    return [FilePlan(SHARD_NAME.format(i, len(groups)), _placed(g)) for i, g in enumerate(groups, 1)]


def _placed(leaves: Iterable[Leaf]) -> tuple[TensorEntry, ...]:
    """The widest elements first, so that every tensor begins at a multiple of its element's size."""
    placed: list[TensorEntry] = []
    end = 0
    for leaf in sorted(leaves, key=lambda leaf: -leaf.spec.dtype.itemsize if leaf.spec else 0):
        assert leaf.spec is not None
        placed.append(TensorEntry(leaf.key.text, leaf.spec, end, end + stored_bytes(leaf.spec)))
        end = placed[-1].stop
    return tuple(placed)


def _entry_bound(leaf: Leaf) -> int:
    """Bytes in a header at most: a character takes six (`\\u0000`), a dimension twenty."""
    ndim = 0 if leaf.spec is None else leaf.spec.ndim
    return 6 * len(leaf.key.text) + 20 * ndim + ENTRY_BYTES


# --- the sink ---------------------------------------------------------------------------------------------


class SafetensorsSink:
    """Writes one file, or shards and their index, into a directory. Thread-safe."""

    def __init__(
        self, directory: Path, metadata: Mapping[str, str], shard_size: int | None, file_name: str | None
    ):
        self._directory = directory
        self._metadata = metadata
        self._shard_size = shard_size
        self._single = file_name or SINGLE_NAME
        self._files: list[FilePlan] = []
        self._places = Places({})
        self._packed: set[str] = set()
        """Keys of the arrays with two elements to a byte."""
        self._pair_lock = threading.Lock()

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why safetensors cannot hold these leaves, one sentence each; empty: it can."""
        return unsupported(leaves) or self._long_headers(leaves)

    def _long_headers(self, leaves: Sequence[Leaf]) -> list[str]:
        metadata = sum(6 * (len(k) + len(v)) + 6 for k, v in self._metadata.items())
        if metadata + sum(map(_entry_bound, leaves)) <= MOST_HEADER_BYTES:
            return []
        files = plan_files(leaves, self._shard_size)
        longest = max(len(header_bytes(f.tensors, self._metadata)) for f in files) - PREFIX_BYTES
        if longest <= MOST_HEADER_BYTES:
            return []
        return [
            f"{len(leaves)} leaves need a header of {longest} bytes, and safetensors allows "
            f"{MOST_HEADER_BYTES}; spread them over several files, by giving a shard size."
        ]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether the stored bytes, one chunk after another, are the tensor's."""
        return leaf.spec is not None and CODES.get(leaf.spec.dtype) != PACKED and in_one_piece(manifest)

    def adopt(self, output: Output) -> None:
        """Copy stored bytes, inside the kernel where it can. Raises StorageError, SourceError."""
        assert output.stored is not None
        self._places.adopt(output.leaf.key.text, output.stored.chunks)

    def create(self, outputs: Sequence[Output]) -> None:
        """Make every file in its full size, with its header. Raises StorageError."""
        self._files = plan_files([output.leaf for output in outputs], self._shard_size, self._single)
        places = {}
        for file in self._files:
            path = self._directory / file.name
            header = header_bytes(file.tensors, self._metadata)
            with storage_errors(path), open(path, "xb") as opened_file:
                opened_file.write(header)
                opened_file.truncate(len(header) + file.data_bytes)
            for tensor in file.tensors:
                places[tensor.name] = Place(path, len(header) + tensor.start, tensor.spec)
        self._places = Places(places)
        self._packed = {t.name for file in self._files for t in file.tensors if t.packed}

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region; regions may be of any form. Raises StorageError."""
        text = output.leaf.key.text
        if text not in self._packed:
            self._places.write(text, region, block)
        elif region.size:
            self._write_packed(self._places[text], region, block)

    def _write_packed(self, place: Place, region: Region, block: np.ndarray) -> None:
        """Two elements share a byte, and two regions may: one at a time, what is there is kept."""
        assert (block.dtype, block.shape) == (place.spec.dtype, region.shape)
        halves, touched = paired(place.spec, region)
        starts, stops = (
            (*region.starts[:-1], 2 * touched.starts[-1]),
            (*region.stops[:-1], 2 * touched.stops[-1]),
        )
        around = Region(starts, stops)
        with self._pair_lock:
            with opened(os.fspath(place.path)) as file:
                whole = read_packed(file, place.offset, place.spec, around)
            whole[region.within(around)] = block
            bits = whole.view(np.uint8)
            both = bits[..., ::2] | bits[..., 1::2] << 4
            put(replace(place, spec=halves), touched, both)

    def finish(self) -> None:
        """Write the index where there are several files. Raises StorageError."""
        if len(self._files) > 1:
            path = self._directory / INDEX_NAME
            with storage_errors(path), open(path, "x", encoding="utf-8") as file:
                file.write(self._index())

    def _index(self) -> str:
        files = {tensor.name: file.name for file in self._files for tensor in file.tensors}
        total = sum(file.data_bytes for file in self._files)
        about = {"metadata": {"total_size": total}, "weight_map": files}
        return json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def open_safetensors_sink(directory: Path, options: SinkOptions) -> SafetensorsSink:
    """A sink on an empty directory: `model.safetensors`, or shards and `model.safetensors.index.json`.

    With `options.file_name` the one file is called so.

    Metadata that is not text is stored as its JSON. Raises UsageError for options that make no sense.
    """
    check_no_choice("safetensors checkpoints have", options.step, options.item, "dst_")
    if options.shard_size is not None and options.shard_size <= 0:
        raise UsageError(f"A shard of {options.shard_size} bytes holds nothing", hint="Give more.")
    if options.shard_size is not None and options.file_name is not None:
        raise UsageError(
            f"{shown(options.file_name)} is one file, which cannot have shards",
            hint="Name a directory, or leave out `shard_size=SIZE`.",
        )
    return SafetensorsSink(directory, _texts(options), options.shard_size, options.file_name)


def _texts(options: SinkOptions) -> dict[str, str]:
    try:
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.metadata.items()}
        "".join((*texts, *texts.values())).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata cannot be stored as text: {error}") from error
    return texts
