"""Writing Flax's MessagePack: one file, its text first, then arrays at their places, in parallel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.flax.detect import SINGLE_NAME
from ckpt_surgery.formats.flax.draft import Draft, draft_of, is_native, native_bytes
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.msgpack_arrays import parts_of
from ckpt_surgery.formats.shared.msgpack_nodes import ArrayAt, BytesAt
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.regions import PreallocatedArray, in_order


class FlaxSink:
    """Writes one file into a directory. `create` writes all of it but the elements."""

    def __init__(self, path: Path, outputs: Sequence[Output]):
        self.outputs = outputs
        self._path = path

    @cached_property
    def _draft(self) -> Draft:
        return draft_of(output.leaf for output in self.outputs)

    def create(self) -> None:
        """Make the file in its full size, with everything but the elements. Raises StorageError."""
        with storage_errors(self._path), open(self._path, "xb") as file:
            file.truncate(self._draft.size)
            for offset, data in self._draft.texts:
                file.seek(offset)
                file.write(data)

    def attach(self, worker: int) -> "FlaxWriter":
        """A writer of arrays. All workers write to the same file."""
        specs = {o.leaf.key.text: o.leaf.spec for o in self.outputs if o.leaf.spec is not None}
        gaps = self._draft.gaps
        return FlaxWriter(
            self._path, {text: ArrayAt(spec, tuple(gaps[text])) for text, spec in specs.items()}
        )

    def finish(self, workers: Sequence[int]) -> None:
        """Do nothing: the file has no index and no commit marker."""


class FlaxWriter:
    """Writes elements into the file. It buffers nothing. Safe to use from several threads."""

    def __init__(self, path: Path, arrays: Mapping[str, ArrayAt]):
        self._path = path
        self._arrays = arrays
        """Where the elements go, by the text of the leaf's key."""

    def adopt(self, output: Output) -> None:
        """Copy stored bytes, inside the kernel where it can. Raises StorageError, SourceError."""
        assert output.stored is not None
        array = self._arrays[output.leaf.key.text]
        for part, at in _dealt(in_order(output.stored), array.pieces):
            copy_chunk(part, self._path, at)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which may have any form. Raises StorageError."""
        array = self._arrays[output.leaf.key.text]
        assert (block.dtype, block.shape) == (array.spec.dtype, region.shape)
        first = array.pieces[0].offset
        if is_native(output.leaf):
            data = np.frombuffer(native_bytes(block), np.uint8)
            spec = ArraySpec(data.shape, data.dtype)
            PreallocatedArray(self._path, first, spec).write(Region.whole(data.shape), data)
        elif len(array.pieces) == 1:
            PreallocatedArray(self._path, first, array.spec).write(region, block)
        else:
            for part in parts_of(array, region):
                PreallocatedArray(self._path, part.offset, part.box).write(part.inner, block[part.place])

    def flush(self) -> None:
        """Return at once: everything is in the file already."""


def _dealt(chunks: Sequence[Chunk], pieces: Iterable[BytesAt]) -> Iterator[tuple[Chunk, int]]:
    """Parts of chunks, and the offsets they go to: the bytes of all chunks fill the pieces, both in order."""
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


def open_flax_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> FlaxSink:
    """A sink that writes one file: `flax_model.msgpack`, or `options.file_name`."""
    return FlaxSink(directory / (options.file_name or SINGLE_NAME), outputs)
