"""Writing Flax's MessagePack: one file, its text first, then arrays at their places, in parallel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.formats.flax.detect import SINGLE_NAME
from ckpt_surgery.formats.flax.draft import Draft, draft_of, is_native, native_bytes, native_value
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.msgpack.arrays import parts_of
from ckpt_surgery.formats.shared.msgpack.nodes import ArrayAt, BytesAt
from ckpt_surgery.storage.adopting import copy_chunk, preallocate
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
        preallocate(self._path, self._draft.size)
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for offset, data in self._draft.texts:
                file.seek(offset)
                file.write(data)

    def attach(self, worker: str) -> "FlaxWriter":
        """A writer of arrays. All workers write to the same file."""
        specs = {o.leaf.key.text: o.leaf.spec for o in self.outputs if o.leaf.spec is not None}
        gaps = self._draft.gaps
        return FlaxWriter(
            self._path, {text: ArrayAt(spec, tuple(gaps[text])) for text, spec in specs.items()}
        )

    def finish(self, workers: Sequence[str]) -> None:
        """Do nothing: the file has no index and no commit marker."""

    def record(self, text: str) -> bool:
        """Do nothing: the file has no place for it."""
        return False


class FlaxWriter:
    """Writes elements into the file. It buffers nothing. Safe to use from several threads."""

    def __init__(self, path: Path, arrays: Mapping[str, ArrayAt]):
        self._path = path
        self._arrays = arrays
        """Where the elements go, by the text of the leaf's key."""

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Copy stored bytes. Raises StorageError, SourceError."""
        assert output.stored is not None
        chunks, pieces = in_order(output.stored), self._arrays[output.leaf.key.text].pieces
        places = _dealt([chunk.length for _, chunk in chunks], pieces)
        return TaskResult(
            {
                index: copy_chunk(chunk, self._path, at, known.get(index))
                for (index, chunk), at in zip(chunks, places, strict=True)
            }
        )

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

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region, as they are in the file. Raises SourceError."""
        array = self._arrays[output.leaf.key.text]
        first = array.pieces[0].offset
        if is_native(output.leaf):
            length = sum(piece.length for piece in array.pieces)
            spec = ArraySpec((length,), np.dtype(np.uint8))
            written = PreallocatedArray(self._path, first, spec).read(Region.whole(spec.shape))
            return native_value(written.tobytes(), array.spec.dtype)
        if len(array.pieces) == 1:
            return PreallocatedArray(self._path, first, array.spec).read(region)
        block = np.empty(region.shape, array.spec.dtype)
        for part in parts_of(array, region):
            block[part.place] = PreallocatedArray(self._path, part.offset, part.box).read(part.inner)
        return block

    def flush(self) -> None:
        """Return at once: everything is in the file already."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The one file."""
        return [str(self._path)]


def _dealt(lengths: Iterable[int], pieces: Sequence[BytesAt]) -> Iterator[list[tuple[int, int]]]:
    """The places that chunks of these lengths go to: their bytes fill the pieces, both in order."""
    rest = [(piece.offset, piece.length) for piece in reversed(pieces)]
    for length in lengths:
        places: list[tuple[int, int]] = []
        while length:
            offset, room = rest.pop()
            taken = min(length, room)
            places.append((offset, taken))
            length -= taken
            if taken < room:
                rest.append((offset + taken, room - taken))
        yield places


def open_flax_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> FlaxSink:
    """A sink that writes one file: `flax_model.msgpack`, or `options.file_name`."""
    return FlaxSink(directory / (options.file_name or SINGLE_NAME), outputs)
