"""Writing Flax's MessagePack: one file, its text first, then arrays at their places, in parallel."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.flax.detect import SINGLE_NAME
from ckpt_surgery.formats.flax.draft import draft_of, is_native, native_bytes
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.limits import not_held
from ckpt_surgery.formats.shared.msgpack_arrays import parts_of
from ckpt_surgery.formats.shared.msgpack_nodes import CHUNKED, ArrayAt, BytesAt
from ckpt_surgery.formats.shared.msgpack_tree import MOST_DEPTH, MOST_TEXT_BYTES, MOST_VALUES
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.regions import Place, Places, in_one_piece, put, storage_errors

# --- what the format cannot hold --------------------------------------------------------------------------


def unsupported(leaves: Sequence[Leaf]) -> list[str]:
    """Why a Flax file cannot hold these leaves, one sentence for each thing; empty: it can."""
    return [sentence for leaf in leaves for sentence in _of_leaf(leaf)] + [*_of_all(leaves)]


def _tick(text: str) -> str:
    return f"`{shown(text)}`"


def _of_leaf(leaf: Leaf) -> Iterator[str]:
    name = _tick(leaf.key.text)
    if leaf.kind is LeafKind.PRNG_KEY:
        yield f"{name} is a PRNG key, whose type would be lost; drop it, or take its data."
    elif leaf.spec is not None and leaf.spec.dtype not in DTYPES.values():
        yield f"{name} {not_held(leaf.spec.dtype, 'Flax cannot restore')}"
    if not (_is_unicode(leaf.key.text) and _is_unicode(leaf.string or "")):
        yield f"{name} is not valid Unicode, so it cannot be stored as UTF-8; rename it, or drop it."
    if len(leaf.string or "") * 4 > MOST_TEXT_BYTES:
        yield f"{name} is a string of {len(leaf.string or '')} characters, too long to be read back; drop it."
    if CHUNKED in leaf.key.names:
        yield f"{name} has the component `{CHUNKED}`, by which Flax knows arrays in pieces; rename it."
    if len(leaf.key.names) > MOST_DEPTH:
        yield f"{name} is nested {len(leaf.key.names)} deep, and {MOST_DEPTH} is the limit; rename it."


def _is_unicode(text: str) -> bool:
    """Free of lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _of_all(leaves: Sequence[Leaf]) -> Iterator[str]:
    """The file is one tree: a node is there once."""
    counts = Counter(leaf.key.names for leaf in leaves)
    maps = {names[:i] for names in counts for i in range(len(names))}
    for names, count in counts.items():
        if count > 1:
            yield f"{count} leaves would have the key {_tick('/'.join(names))}; rename all but one."
    if len(counts) + len(maps) > MOST_VALUES:
        yield (
            f"{len(leaves)} leaves in {len(maps)} containers are too many to be read back: "
            f"{MOST_VALUES} is the limit; drop some."
        )


# --- the sink ---------------------------------------------------------------------------------------------


class FlaxSink:
    """Writes one file into a directory. Thread-safe."""

    def __init__(self, directory: Path, file_name: str | None):
        self._path = directory / (file_name or SINGLE_NAME)
        self._places = Places({})
        self._arrays: dict[str, ArrayAt] = {}
        """Where arrays go, by key text."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why a Flax file cannot hold these leaves, one sentence each; empty: it can."""
        return unsupported(leaves)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether the stored bytes, one chunk after another, are the array's."""
        return not is_native(leaf) and in_one_piece(manifest)

    def create(self, outputs: Sequence[Output]) -> None:
        """Make the file in its full size, with all that is known. Raises StorageError."""
        draft = draft_of(output.leaf for output in outputs)
        with storage_errors(self._path), open(self._path, "xb") as file:
            file.truncate(draft.size)
            for offset, data in draft.texts:
                file.seek(offset)
                file.write(data)
        places = {}
        for leaf in (output.leaf for output in outputs if output.leaf.spec is not None):
            text, spec = leaf.key.text, leaf.spec
            assert spec is not None
            self._arrays[text] = ArrayAt(spec, tuple(draft.gaps[text]))
            places[text] = Place(self._path, draft.gaps[text][0].offset, spec)
        self._places = Places(places)

    def adopt(self, output: Output) -> None:
        """Copy stored bytes, inside the kernel where it can. Raises StorageError, SourceError."""
        assert output.stored is not None
        text, chunks = output.leaf.key.text, output.stored.chunks
        array = self._arrays[text]
        if len(array.pieces) == 1:
            self._places.adopt(text, chunks)
            return
        for part, at in _dealt([chunks[index] for index in sorted(chunks)], array.pieces):
            copy_chunk(part, self._path, at)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region; regions may be of any form. Raises StorageError."""
        text = output.leaf.key.text
        array = self._arrays[text]
        if is_native(output.leaf):
            data = np.frombuffer(native_bytes(block), np.uint8)
            put(self._place(array.pieces[0].offset, data), Region.whole(data.shape), data)
        elif len(array.pieces) == 1:
            self._places.write(text, region, block)
        else:
            assert (block.dtype, block.shape) == (array.spec.dtype, region.shape)
            for part in parts_of(array, region):
                put(Place(self._path, part.offset, part.box), part.inner, block[part.place])

    def _place(self, offset: int, data: np.ndarray) -> Place:
        return Place(self._path, offset, ArraySpec(data.shape, data.dtype))

    def finish(self) -> None:
        """Nothing is left to do: the file was whole but for its arrays from the beginning."""


def _dealt(chunks: Sequence[Chunk], pieces: Iterable[BytesAt]) -> Iterator[tuple[Chunk, int]]:
    """Parts of chunks, and where they go: the bytes of all chunks fill the pieces, both in their order."""
    rest = list(reversed(chunks))
    for piece in pieces:
        at, end = piece.offset, piece.offset + piece.length
        while at < end:
            chunk = rest.pop()
            length = min(chunk.length, end - at)
            yield _cut(chunk, 0, length), at
            at += length
            if length < chunk.length:
                rest.append(_cut(chunk, length, chunk.length))


def _cut(chunk: Chunk, start: int, stop: int) -> Chunk:
    """The bytes of a chunk from `start` to `stop`."""
    if chunk.inline is not None:
        return replace(chunk, length=stop - start, inline=chunk.inline[start:stop])
    return replace(chunk, offset=chunk.offset + start, length=stop - start)


def open_flax_sink(directory: Path, options: SinkOptions) -> FlaxSink:
    """A sink on an empty directory: one file, `flax_model.msgpack` or `options.file_name`.

    Custom metadata has no place in it. Raises UsageError for options that make no sense.
    """
    check_no_choice("Flax files have", options.step, options.item, "dst_")
    return FlaxSink(directory, options.file_name)
