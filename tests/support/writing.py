"""Writing checkpoints in tests, and what every sink must do for several workers."""

import contextlib
import multiprocessing
import os
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Encoder, Output, Sink, Writer
from ckpt_surgery.formats.opening import encoder, open_sink
from ckpt_surgery.formats.registry import SinkOptions
from tests.support.comparing import assert_same

Arrays = Mapping[str, np.ndarray]
"""Arrays by name; names are key paths joined with `/`."""


def leaf_of(name: str, value: np.ndarray) -> Leaf:
    return Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec(value.shape, value.dtype))


def output_of(name: str, value: np.ndarray, chunks: tuple[int, ...] | None = None) -> Output:
    """An array to be written; in chunks of three by default, which divide nothing evenly."""
    wanted = tuple(max(1, min(3, n)) for n in value.shape) if chunks is None else chunks
    return Output(leaf_of(name, value), wanted)


def in_chunks(outputs: Sequence[Output], arrays: Arrays) -> list[tuple[Output, Region, np.ndarray]]:
    """Every chunk of every array, with its elements, in a random order."""
    work = [
        (output, region, arrays[output.leaf.key.text][region.slices])
        for output in outputs
        if output.leaf.spec is not None
        for region in chunk_regions(output.leaf.spec.shape, output.chunks)
    ]
    random.Random(0).shuffle(work)
    return work


def write_all(sink: Sink, arrays: Arrays) -> None:
    """A whole run of one worker: every array in one region, and stored bytes where there are some."""
    sink.create()
    writer = sink.attach("0")
    for output in sink.outputs:
        if output.stored is not None:
            writer.adopt(output)
        elif output.leaf.spec is not None:
            writer.write(output, Region.whole(output.leaf.spec.shape), arrays[output.leaf.key.text])
    writer.flush()
    sink.finish(["0"])


def write_chunks(sink: Sink, arrays: Arrays) -> None:
    """A whole run of one worker: chunk by chunk, from several threads, in no order."""
    sink.create()
    writer = sink.attach("0")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: writer.write(*one), in_chunks(sink.outputs, arrays)))
    writer.flush()
    sink.finish(["0"])


class Workers:
    """What every sink must do for several workers."""

    format: ClassVar[str]
    more_options: ClassVar[Mapping[str, Any]] = {}
    """Options of the sink besides the metadata."""

    def load(self, path: Path) -> dict[str, np.ndarray]:
        """Let the format's own library read the directory that a sink wrote."""
        raise NotImplementedError

    def options(self, metadata: Mapping[str, Any] | None = None) -> SinkOptions:
        return SinkOptions(metadata=metadata or {}, **self.more_options)

    def encoder(self) -> Encoder:
        return encoder(self.format, self.options())

    def outputs(self, arrays: Arrays) -> list[Output]:
        """The arrays in chunks of about three, or of about a thousand where they are long."""
        made, found = self.encoder(), []
        for name, value in arrays.items():
            leaf = leaf_of(name, value)
            wanted = tuple(max(1, min(3 if n < 100 else 1001, n)) for n in value.shape)
            found.append(Output(leaf, made.grid(leaf, wanted)))
        return found

    def sink(
        self, directory: Path, outputs: Sequence[Output], metadata: Mapping[str, Any] | None = None
    ) -> Sink:
        directory.mkdir(exist_ok=True)
        return open_sink(self.format, directory, self.options(metadata), outputs)

    def shared_work(self) -> dict[str, np.ndarray]:
        """Arrays of several chunks, small and large."""
        generator = np.random.default_rng(0)
        arrays = {f"layer_{i}/w": generator.standard_normal((7, 5)).astype(np.float32) for i in range(4)}
        return arrays | {"large": generator.integers(0, 256, (9, 5000), np.uint8), "one": np.array(7)}

    def half_written(self, directory: Path) -> tuple[dict[str, np.ndarray], Sink]:
        """Arrays of which a worker that was killed wrote every other chunk, and a new sink for them."""
        arrays = self.shared_work()
        first = self.sink(directory, self.outputs(arrays))
        first.create()
        _write_part(first.attach("0"), first, arrays, 0, 2)
        return arrays, self.sink(directory, self.outputs(arrays))

    def test_two_writers(self, tmp_path: Path) -> None:
        """Each writes every other chunk, at the same time."""
        arrays = self.shared_work()
        sink = self.sink(tmp_path / "written", self.outputs(arrays))
        sink.create()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: _write_part(sink.attach(str(n)), sink, arrays, n, 2), (0, 1)))
        sink.finish(["0", "1"])
        assert_same(self.load(tmp_path / "written"), arrays)

    def test_a_worker_that_begins_again(self, tmp_path: Path) -> None:
        """What was flushed before it was killed counts; what it writes again does no harm."""
        arrays, again = self.half_written(tmp_path / "written")
        writer = again.attach("0")
        for output, region, block in in_chunks(again.outputs, arrays)[:5]:
            writer.write(output, region, block)
        _write_part(writer, again, arrays, 1, 2)
        again.finish(["0"])
        assert_same(self.load(tmp_path / "written"), arrays)

    def test_what_an_earlier_process_wrote_is_read_back(self, tmp_path: Path) -> None:
        """After `create` has been repeated too; what was not written is missing."""
        arrays, again = self.half_written(tmp_path / "written")
        again.create()
        writer = again.attach("0")
        work = in_chunks(again.outputs, arrays)
        for output, region, block in work[0::2]:
            found = writer.read(output, region)
            assert (found.dtype, found.tobytes()) == (block.dtype, block.tobytes())
        for output, region, block in work[1::2]:
            with contextlib.suppress(SurgeryError):
                assert writer.read(output, region).tobytes() != block.tobytes()

    def test_finish_is_repeated(self, tmp_path: Path) -> None:
        """After a crash in the middle of the first one nothing is left of it. One worker had no work."""
        arrays = self.shared_work()
        sink = self.sink(tmp_path / "written", self.outputs(arrays))
        sink.create()
        sink.attach("0").flush()
        _write_part(sink.attach("1"), sink, arrays, 0, 1)
        sink.finish(["0", "1"])
        files = len(list(tmp_path.rglob("*")))
        sink.finish(["0", "1"])
        assert len(list(tmp_path.rglob("*"))) == files
        assert_same(self.load(tmp_path / "written"), arrays)

    def test_encoders_touch_no_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        leaves = [output.leaf for output in self.outputs(self.shared_work())]
        assert self.encoder().unsupported(leaves) == []  # whatever that imports is imported now
        for module, name in (("builtins", "open"), ("os", "open"), ("os", "stat"), ("os", "scandir")):
            monkeypatch.setattr(f"{module}.{name}", _refuse)
        made = encoder(self.format, self.options())
        found = made.unsupported(leaves), [made.grid(leaf, (1,) * leaf.spec.ndim) for leaf in leaves]
        monkeypatch.undo()
        assert found[0] == []


class Processes(Workers):
    """What a sink must do for several processes. One format of each kind of sink tries it."""

    @pytest.mark.slow("starts two processes for each format")
    def test_two_processes(self, tmp_path: Path) -> None:
        """Each opens the sink for itself; a third one finishes what they wrote."""
        arrays = self.shared_work()
        self.sink(tmp_path / "written", self.outputs(arrays)).create()
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, context, max_tasks_per_child=1) as pool:
            jobs = [pool.submit(_process, type(self), tmp_path / "written", n, 2) for n in (0, 1)]
            assert len({job.result() for job in jobs}) == 2
        self.sink(tmp_path / "written", self.outputs(arrays)).finish(["0", "1"])
        assert_same(self.load(tmp_path / "written"), arrays)


def _refuse(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("the disk was touched")


def _write_part(writer: Writer, sink: Sink, arrays: Arrays, number: int, count: int) -> None:
    """Write the chunk with this number of every `count` chunks."""
    for one in in_chunks(sink.outputs, arrays)[number::count]:
        writer.write(*one)
    writer.flush()


def _process(kind: type[Workers], directory: Path, number: int, count: int) -> int:
    """One worker in a process of its own; returns the process's number."""
    tests = kind()
    arrays = tests.shared_work()
    sink = tests.sink(directory, tests.outputs(arrays))
    _write_part(sink.attach(str(number)), sink, arrays, number, count)
    return os.getpid()
