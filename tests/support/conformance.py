"""What every format must do, as classes that a format's tests inherit.

`Reading` holds for every format, `Writing` for those that can be written. A subclass names the format, the
dtypes that it can hold, how its own library saves and loads, and how its files can lie.
"""

import contextlib
import itertools
import os
import re
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.opening import detect_format, open_source
from ckpt_surgery.storage.listing import data_file
from tests.formats.bounds import bounded
from tests.support.arrays import ALL_DTYPES, array
from tests.support.comparing import assert_same, same
from tests.support.directories import copy_of, files_of
from tests.support.effort import THOROUGH
from tests.support.leaves import leaf
from tests.support.reading import values
from tests.support.store_conformance import ReadingFromStore
from tests.support.writing import Arrays, Workers, leaf_of, output_of, write_all, write_chunks

NAMES = (
    *("../../etc/passwd", "/absolute", "a//b", "trailing/", ".", "..", "~", "a\\b", "C:\\x", "%2e%2e", "a b"),
    *("A", "a", "é", "e\u0301", "ключ/λ/🙂", "model.layers.0.weight", "model/layers.0/weight", "0", "007"),
    *("nul\0byte", "new\nline", "\x1b[31mred", "\u202egnp", "[bold]", '"quoted"', "{}", "$(x)", "x" * 4000),
)
"""Names that are only names, whatever they look like."""

CUTS = 100
"""Offsets at which the files of a checkpoint are cut, together."""
SLACK_BYTES = 4 * 2**20
"""Memory that opening and reading any checkpoint may take, however small."""
PARSING = 25
"""What is parsed takes this many times the size of its text; what a file merely claims takes nothing."""


def random_regions(shape: tuple[int, ...], count: int, seed: int = 0) -> Iterator[Region]:
    """The whole, boxes at random, single elements, and an empty one."""
    rng = np.random.default_rng(seed)
    yield Region.whole(shape)
    for i in range(count):
        ends = [sorted(rng.integers(0, n + 1, 2)) for n in shape]
        if i % 4 == 0:
            ends = [
                [min(a, n - 1), min(a, n - 1) + 1] if n else [0, 0]
                for (a, _), n in zip(ends, shape, strict=True)
            ]
        yield Region(tuple(int(a) for a, _ in ends), tuple(int(b) for _, b in ends))
    yield Region((0,) * len(shape), (0,) * len(shape))


def allowance(path: Path) -> int:
    """Bytes of memory for reading a checkpoint: by the size of its files, whatever they say."""
    return SLACK_BYTES + PARSING * sum(file.stat().st_size for file in files_of(path) if file.exists())


@dataclass(frozen=True)
class Lie:
    """A checkpoint that is not what it says."""

    reason: str
    """Why it must be refused; the test's name."""
    make: Callable[[Path], Path]
    """Makes it in an empty directory; what to open."""
    says: str = ""
    """A pattern that the refusal matches."""


def file_lie(name: str, reason: str, says: str, data: bytes) -> Lie:
    """A file of this name with these bytes."""

    def make(directory: Path) -> Path:
        (directory / name).write_bytes(data)
        return directory / name

    return Lie(reason, make, says)


class Reading(ReadingFromStore):
    """What every source must do."""

    format: ClassVar[str]
    dtypes: ClassVar[Sequence[str]]
    """Every dtype that the format can hold."""
    names: ClassVar[Sequence[str]] = NAMES
    """The ones of NAMES that the format's library can write."""
    lies: ClassVar[Sequence[Lie]]
    raw: ClassVar[bool] = True
    """Whether the sample's manifests point at the elements' bytes as they are in memory, in C order."""

    def save(self, arrays: Arrays, path: Path) -> Path:
        """Let the format's own library write; `path` does not exist. Returns what to open."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", self.dtypes)
        if "other_dtype" in metafunc.fixturenames:
            metafunc.parametrize("other_dtype", [d for d in ALL_DTYPES if d not in self.dtypes])
        if "lie" in metafunc.fixturenames:
            metafunc.parametrize("lie", self.lies, ids=[lie.reason for lie in self.lies])

    def sample(self) -> dict[str, np.ndarray]:
        """A little of everything: types of several widths, 0-d, without elements, nested."""
        return {
            "dense/kernel": array((4, 6), "float32"),
            "dense/bias": array((6,), "float32"),
            "count": array((), "int32"),
            "mask": array((3, 5), "bool"),
            "none/of/it": array((0, 4), "float32"),
            "bytes": array((7,), "uint8"),
        }

    def open(self, path: Path) -> Source:
        return open_source(os.fspath(path), self.format)

    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The sample, as the format's library writes it. Read-only."""
        return cls().save(cls().sample(), tmp_path_factory.mktemp(cls.format) / "saved")

    def outcome(self, path: Path) -> dict[str, np.ndarray] | SourceError:
        """All that is read from a damaged checkpoint, or the refusal; within the bounds of its size."""
        try:
            with bounded(allowance(path)):
                return values(self.open(path))
        except SourceError as error:
            assert len(str(error)) < 2000
            return error

    def test_format_names_shapes_dtypes_and_bytes_agree(self, saved: Path) -> None:
        assert_same(values(self.open(saved)), self.sample())
        assert detect_format(os.fspath(saved)).name == self.format

    def test_names_are_only_names(self, tmp_path: Path) -> None:
        arrays = {name: array((2, i % 3), "float32", i) for i, name in enumerate(self.names)}
        source = self.open(self.save(arrays, tmp_path / "saved"))
        assert_same(values(source), arrays)
        assert [leaf.key for leaf in source.leaves().values()] == [Key.parse(t) for t in source.leaves()]

    @pytest.mark.parametrize(
        "shape",
        [
            (),  # a scalar
            (13,),
            (7, 5, 6),
            (0, 3),  # no element
            (3, 700, 400),  # larger than what is read in one go
            (90_000, 5),  # many short rows
            (2, 2, 2, 2),
        ],
    )
    def test_regions(self, shape: tuple[int, ...], tmp_path: Path) -> None:
        arrays = {"before": array((3,), "int8"), "x": array(shape, "float32"), "after": array((3,), "int8")}
        source = self.open(self.save(arrays, tmp_path / "saved"))
        leaf = source.leaves()["x"]
        for region in random_regions(shape, 20):
            assert same(source.read(leaf, region), arrays["x"][region.slices]), region

    def test_every_dtype(self, dtype: str, tmp_path: Path) -> None:
        arrays = {"x": array((6, 8), dtype), "y": array((2,), dtype, 1), "none": array((0, 2), dtype)}
        source = self.open(self.save(arrays, tmp_path / "saved"))
        assert_same(values(source), arrays)
        for start, stop in itertools.combinations(range(7), 2):
            for region in (Region((start, 1), (stop, 4)), Region((1, start), (4, stop))):
                assert same(source.read(source.leaves()["x"], region), arrays["x"][region.slices])

    def test_several_threads_read(self, tmp_path: Path) -> None:
        arrays = {f"x{i}": array((50, 60), "float32", i) for i in range(8)}
        source = self.open(self.save(arrays, tmp_path / "saved"))
        work = [(name, region) for name in arrays for region in random_regions((50, 60), 20)]

        def right(name: str, region: Region) -> bool:
            return same(source.read(source.leaves()[name], region), arrays[name][region.slices])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda job: right(*job), work))

    def test_manifests_cover_the_array(self, saved: Path) -> None:
        for name, value in self.sample().items():
            manifest = self.open(saved).leaves()[name].manifest
            assert manifest.spec == ArraySpec(value.shape, value.dtype)
            assert len(manifest.chunk_shape) == value.ndim
            assert all(manifest.chunk_shape)
            assert sorted(manifest.codec.permutation) == list(range(value.ndim))
            assert manifest.complete
            chunks = [c for c in chunk_regions(value.shape, manifest.chunk_shape) if c.size]
            assert len(manifest.chunks) == len(chunks)

    def test_manifests_point_at_the_bytes(self, saved: Path) -> None:
        source = self.open(saved)
        for name, value in self.sample().items():
            manifest = source.leaves()[name].manifest
            assert manifest.codec.raw == self.raw
            if manifest.codec.raw:
                assert manifest.codec.order == "C" or value.ndim < 2
                stored = [_stored(chunk) for chunk in manifest.chunks.values()]
                assert b"".join(stored) == value.tobytes(), name

    def test_manifests_name_files_of_the_checkpoint(self, saved: Path) -> None:
        """As the source itself calls them, one string for all chunks of a file."""
        source = self.open(saved)
        manifests = [leaf.manifest for leaf in source.leaves().values()]
        chunks = [chunk for manifest in manifests if manifest for chunk in manifest.chunks.values()]
        named = [chunk.file for chunk in chunks if chunk.inline is None]
        assert set(named) <= set(source.files())
        assert len({id(name) for name in named}) == len(set(named))

    @pytest.mark.parametrize("relative", [False, True])
    def test_a_path_relative_to_the_working_directory(
        self, relative: bool, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both read the same, and are the same to plans that were saved, which have absolute paths."""
        monkeypatch.chdir(saved.parent)
        source = self.open(Path(saved.name) if relative else saved)
        assert_same(values(source), self.sample())
        assert source.fingerprint() == self.open(saved).fingerprint()

    def test_listing_reads_no_array(self, tmp_path: Path) -> None:
        path = self.save({"x": array((2**22,), "uint8"), "y": array((2**22,), "uint8")}, tmp_path / "saved")
        list(self.open(path).leaves())  # whatever is imported on first use is not counted
        with bounded(2**20):
            assert list(self.open(path).leaves()) == ["x", "y"]

    def test_a_region_takes_its_own_memory_only(self, tmp_path: Path) -> None:
        path = self.save({"x": array((2048, 4096), "uint8")}, tmp_path / "saved")
        source = self.open(path)
        leaf = source.leaves()["x"]
        source.read(leaf, Region((0, 0), (1, 1)))
        manifest = leaf.manifest  # a chunk that is not raw is read whole
        chunk = 0 if manifest is None or manifest.codec.raw else manifest.chunks[0, 0].length
        with bounded(3 * 2**20 + chunk):
            assert source.read(leaf, Region((100, 0), (200, 4096))).shape == (100, 4096)

    def test_the_fingerprint_follows_the_files_wherever_they_lie(self, saved: Path, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        path = copy_of(saved, here)
        before = self.open(path).fingerprint()
        for file in files_of(path):
            stat = file.stat()
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
            assert self.open(path).fingerprint() != before
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        here.rename(there)
        assert self.open(there / path.relative_to(here)).fingerprint() == before

    def test_truncated_files(self, saved: Path, tmp_path: Path) -> None:
        """Cut anywhere, a checkpoint is refused; but for what is no part of it, such as a last line break."""
        path = copy_of(saved, tmp_path / "copy")
        files = files_of(path)
        cuts = min(20, max(6, CUTS // len(files))) if THOROUGH else 3
        for file in files:
            whole = file.read_bytes()
            refused = 0
            for cut in sorted({len(whole) * i // cuts for i in range(cuts)} | {len(whole) - 1}):
                file.write_bytes(whole[:cut])
                found = self.outcome(path)
                refused += isinstance(found, SourceError)
                if not isinstance(found, SourceError):
                    assert_same(found, self.sample())
            assert refused >= min(cuts, len(whole)) // 2, file
            file.write_bytes(whole)
        assert_same(values(self.open(path)), self.sample())

    def test_a_file_cut_after_it_was_listed(self, saved: Path, tmp_path: Path) -> None:
        path = copy_of(saved, tmp_path / "copy")
        source = self.open(path)
        assert source.leaves()
        for file in files_of(path):
            os.truncate(file, file.stat().st_size // 2)
        with pytest.raises(SourceError):
            values(source)

    def test_missing_files(self, saved: Path, tmp_path: Path) -> None:
        path = copy_of(saved, tmp_path / "copy")
        for file in files_of(path):
            file.rename(tmp_path / "aside")
            if file == path:
                with pytest.raises(UsageError, match="does not exist"):
                    self.open(path)
            else:
                assert isinstance(self.outcome(path), SourceError), file
            (tmp_path / "aside").rename(file)
        assert_same(values(self.open(path)), self.sample())

    def test_lies(self, lie: Lie, tmp_path: Path) -> None:
        refusal = self.outcome(lie.make(tmp_path))
        assert isinstance(refusal, SourceError)
        assert re.search(lie.says, str(refusal))

    def test_special_files(self, saved: Path, tmp_path: Path) -> None:
        """A pipe in place of a file must not be waited for."""
        path = copy_of(saved, tmp_path / "copy")
        file = files_of(path)[-1]
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(SourceError), bounded(SLACK_BYTES):
            values(self.open(path))

    def test_links_lead_nowhere_else(self, saved: Path, tmp_path: Path) -> None:
        """Within a directory that is a checkpoint; a file that is one may itself be a link."""
        path = copy_of(saved, tmp_path / "copy")
        for file in files_of(path):
            aside = tmp_path / "aside"
            file.rename(aside)
            file.symlink_to(aside)
            if path.is_dir():
                with pytest.raises(SourceError, match="symbolic link"):
                    values(self.open(path))
            else:
                assert_same(values(self.open(path)), self.sample())
            file.unlink()
            aside.rename(file)


class Writing(Workers, Reading):
    """What every sink must do besides."""

    refused_kinds: ClassVar[Sequence[LeafKind]] = (LeafKind.STRING, LeafKind.PRNG_KEY)
    refused_names: ClassVar[Sequence[str]] = ()
    """The ones of NAMES that the format can read but not write."""

    def write(self, arrays: Arrays, directory: Path) -> Path:
        """Write arrays in regions of a few elements, from several threads, in no order."""
        outputs = self.outputs(arrays)
        assert self.encoder().unsupported([output.leaf for output in outputs]) == []
        write_chunks(self.sink(directory, outputs), arrays)
        return directory

    def test_the_library_and_the_source_read_what_the_sink_wrote(self, tmp_path: Path) -> None:
        path = self.write(self.sample(), tmp_path / "written")
        assert_same(self.load(path), self.sample())
        assert detect_format(os.fspath(path)).name == self.format
        assert_same(values(self.open(path)), self.sample())

    def test_a_checkpoint_without_leaves(self, tmp_path: Path) -> None:
        path = self.write({}, tmp_path / "written")
        assert self.load(path) == self.open(path).leaves() == {}

    def test_every_dtype_is_written(self, dtype: str, tmp_path: Path) -> None:
        arrays = {
            "odd": array((3, 4), dtype),
            "wide": array((5, 14), dtype, 1),
            "none": array((0, 2), dtype),
            "last": array((2,), dtype, 2),
        }
        path = self.write(arrays, tmp_path / "written")
        assert_same(self.load(path), arrays)
        assert_same(values(self.open(path)), arrays)

    def test_other_dtypes_are_refused_by_key(self, other_dtype: str) -> None:
        (told,) = self.encoder().unsupported([leaf_of("layer/x", array((4,), other_dtype))])
        assert "`layer/x`" in told
        assert other_dtype in told

    def test_other_kinds_are_refused_by_key(self) -> None:
        leaves = [leaf(f"a/{kind}", kind.value) for kind in self.refused_kinds]
        told = self.encoder().unsupported(leaves)
        assert len(told) == len(leaves)
        assert all(f"`a/{kind}`" in sentence for kind, sentence in zip(self.refused_kinds, told, strict=True))

    def test_names_are_written(self, tmp_path: Path) -> None:
        names = [name for name in self.names if name not in self.refused_names]
        arrays = {name: array((2, i % 3), "float32", i) for i, name in enumerate(names)}
        path = self.write(arrays, tmp_path / "written")
        assert_same(self.load(path), arrays)
        assert_same(values(self.open(path)), arrays)
        assert sorted(tmp_path.iterdir()) == [path]

    def test_names_that_cannot_be_written_are_refused(self) -> None:
        for name in (*self.refused_names, "lone\ud800surrogate"):
            assert len(self.encoder().unsupported([leaf_of(name, array((2,), "float32"))])) == 1, name

    def test_grids_are_close_to_what_is_wanted(self, dtype: str) -> None:
        """No axis gets shorter, or longer by more than one element; what was given is given again."""
        leaf, encoder = leaf_of("x", array((4, 6), dtype)), self.encoder()
        for wanted in ((1, 1), (3, 5), (4, 6), (2, 2)):
            found = encoder.grid(leaf, wanted)
            assert all(n in (w, w + 1) for n, w in zip(found, wanted, strict=True))
            assert encoder.grid(leaf, found) == found

    def test_blocks_may_lie_anyhow_in_memory(self, tmp_path: Path) -> None:
        value = array((6, 8), "float32")
        for i, block in enumerate(
            (np.asfortranarray(value), np.repeat(value, 2, axis=1)[:, ::2], value[::-1][::-1])
        ):
            write_all(self.sink(tmp_path / str(i), [output_of("x", value)]), {"x": block})
            assert_same(self.load(tmp_path / str(i)), {"x": value})

    def test_metadata_is_kept(self, tmp_path: Path) -> None:
        metadata, arrays = {"author": "a\nλ", "note": ""}, {"x": np.ones(3)}
        write_all(self.sink(tmp_path / "written", self.outputs(arrays), metadata), arrays)
        assert self.open(tmp_path / "written").metadata == {"author": "a\nλ", "note": ""}

    def test_a_full_disk_is_a_storage_error(self, tmp_path: Path) -> None:
        value = array((2**20,), "uint8")
        with pytest.raises(StorageError), file_size_limit(2**18):
            write_all(self.sink(tmp_path / "written", [output_of("x", value, (2**20,))]), {"x": value})

    def test_a_vanished_directory_is_a_storage_error(self, tmp_path: Path) -> None:
        sink = self.sink(tmp_path / "written", [output_of("x", np.ones(3))])
        (tmp_path / "written").rmdir()
        with pytest.raises(StorageError):
            write_all(sink, {"x": np.ones(3)})


def _stored(chunk: Chunk) -> bytes:
    """Where the engine finds a chunk that it links."""
    if chunk.inline is not None:
        assert not chunk.file
        return chunk.inline
    data = Path(chunk.file).read_bytes()
    assert data_file(chunk.file).size == len(data)
    return data[chunk.offset :][: chunk.length]


@contextlib.contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    """No file of this process may grow beyond `nbytes`, much as on a disk that is full."""
    assert threading.current_thread() is threading.main_thread()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
