"""What is damaged between writing and publishing is not published: files are really cut, deleted, changed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import SourceError, StorageError, SurgeryError, UsageError, VerificationError
from ckpt_surgery.formats.orbax.writing import OrbaxSink
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.runs.run import Result
from ckpt_surgery.verification.new_checkpoints import verify_written
from tests.support.directories import files_of, names
from tests.support.failing import raising
from tests.support.sharded_runs import SUFFIXES

Harm = Callable[[Path], None]
BeforeVerification = Callable[[Harm], None]
ARRAYS: dict[str, np.ndarray] = {
    "a/kernel": np.random.default_rng(0).standard_normal((400, 300)).astype(np.float32),
    "a/bias": np.arange(5000, dtype=np.int32),
    "b": np.random.default_rng(1).standard_normal((70, 30)).astype(np.float64),
}
DOUBLE = "version: 1\nrules:\n  - match: '(?P<all>.*)'\n    to: '${all}'\n    value: 'x + x'\n"
NAMES = {format: f"out{suffix}" for format, suffix in SUFFIXES.items()}
"""A destination for each format that is written."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_file(ARRAYS, tmp_path / "source.safetensors")
    return tmp_path / "source.safetensors"


@pytest.fixture
def doubled(source: Path) -> Callable[..., Result]:
    """`doubled(name)`: writes twice the values of the source there, all of them computed."""
    recipe = source.with_name("recipe.yaml")
    recipe.write_text(DOUBLE)
    return lambda name, **options: ckpt_surgery.apply(recipe, source, dst=source.with_name(name), **options)


@pytest.fixture
def before_verification(monkeypatch: pytest.MonkeyPatch) -> BeforeVerification:
    """`before_verification(harm)`: `harm` is called with what was written, after the run."""

    def install(harm: Harm) -> None:
        real = verify_written

        def harmed(prepared: Any, product: str, *rest: Any, **more: Any) -> Any:
            harm(Path(product))
            return real(prepared, product, *rest, **more)

        monkeypatch.setattr("ckpt_surgery.runs.run.verify_written", harmed)

    return install


def data_files(product: Path) -> list[Path]:
    """The files with elements, the largest first."""
    return sorted((p for p in files_of(product) if p.stat().st_size > 1000), key=lambda p: -p.stat().st_size)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def assert_refused(error: SurgeryError, directory: Path, name: str) -> None:
    """The error of a result that was not published, and nothing is left of it."""
    assert error.exit_code == 3
    assert "Nothing was published" in str(error)
    assert name not in names(directory)
    assert not [left for left in names(directory) if left.startswith(".")]


# --- every format -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("harm", ["cut", "deleted", "flipped", "emptied"])
@pytest.mark.parametrize("computed", [True, False])
def test_damage_is_never_published(
    format: str,
    harm: str,
    computed: bool,
    source: Path,
    doubled: Callable[..., Result],
    before_verification: BeforeVerification,
) -> None:
    def damage(product: Path) -> None:
        file = data_files(product)[0]
        if harm == "cut":
            os.truncate(file, file.stat().st_size - 700)
        elif harm == "deleted":
            file.unlink()
        elif harm == "emptied":
            os.truncate(file, 0)
        else:
            flip(file, file.stat().st_size // 2)

    before_verification(damage)
    flipped = r"^`a/kernel`, chunk \(0, 0\): (its checksum is|its chunk c/0/0 .* cannot be decoded)"
    with pytest.raises(VerificationError, match=flipped if harm == "flipped" else None) as caught:
        if computed:
            doubled(NAMES[format])
        else:
            ckpt_surgery.convert(source, source.with_name(NAMES[format]), link_mode="copy")
    assert_refused(caught.value, source.parent, NAMES[format])


def test_nothing_is_read_where_nothing_is_asked_for(
    source: Path, doubled: Callable[..., Result], before_verification: BeforeVerification
) -> None:
    for mode in ("fast", "full"):
        verified = doubled(mode, verify=mode).verified
        assert (verified.mode, verified.bytes_read, verified.bytes_not_read) == (Verify(mode), 516800, 0)
    before_verification(lambda product: flip(data_files(product)[0], 2000))
    result = doubled("out", verify="none")
    assert (result.verified.bytes_read, result.verified.bytes_not_read) == (0, 516800)
    with pytest.raises(UsageError, match="`verify`: 'some' is not one of: fast, full, none"):
        doubled("other", verify="some")


def swap_halves(product: Path) -> None:
    """Each chunk is whole in itself, so that only the checksums of values tell."""
    array = ts.open({"driver": "zarr3", "kvstore": f"file://{product}/a/kernel/"}, open=True).result()
    array.write(np.asarray(array.read().result())[::-1]).result()


HARMS: dict[str, tuple[str, Harm, str]] = {
    "two chunks that changed places": (
        "out.zarr",
        swap_halves,
        r"`a/kernel`, chunk \(0, 0\): its checksum is \w{8}, not \w{8}",
    ),
    "other arrays": (
        "out.safetensors",
        lambda product: save_file({**ARRAYS, "b": np.zeros((30, 70)), "extra": np.zeros(3)}, product),
        r"(?s)`b`: it is float64\[30,70\], not float64\[70,30\].*"
        r"`extra`: it is in the checkpoint, but not in the plan",
    ),
    "a leaf that is missing": (
        "out.zarr",
        lambda product: shutil.rmtree(product / "b"),
        "`b`: it is missing",
    ),
    "a chunk without bytes is not the fill value": (
        "out.zarr",
        lambda product: (product / "b" / "c" / "0" / "0").unlink(),
        r"`b`, chunk \(0, 0\): its stored bytes are missing",
    ),
}


@pytest.mark.parametrize("case", HARMS)
def test_what_is_not_the_plan_s_is_told(
    case: str, doubled: Callable[..., Result], before_verification: BeforeVerification
) -> None:
    name, harm, says = HARMS[case]
    before_verification(harm)
    with pytest.raises(VerificationError, match=says):
        doubled(name)


@pytest.mark.parametrize(("computed", "mode"), [(False, "fast"), (False, "full"), (True, "full")])
def test_what_shards_copied_is_always_read_again(
    computed: bool, mode: str, source: Path, before_verification: BeforeVerification
) -> None:
    """What they computed, they have read back themselves: `full` reads it once more."""
    recipe, plan, out = DOUBLE if computed else None, source.with_name("plan.json"), source.with_name("out")
    ckpt_surgery.plan(recipe, source, dst=out, out=plan, link_mode="copy")
    ckpt_surgery.apply_shard(plan, shard="0/1")
    before_verification(lambda product: flip(data_files(product)[0], 400_000))
    with pytest.raises(VerificationError, match="`a/kernel`"):
        ckpt_surgery.commit(out, verify=mode)
    assert "out" not in names(source.parent)


# --- linked chunks ----------------------------------------------------------------------------------------

CODECS: dict[str, list[dict[str, Any]]] = {
    "zstd": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1}}],
    "gzip": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}],
    "blosc": [{"name": "bytes"}, {"name": "blosc"}],
}


def zarr_of(path: Path, codecs: list[dict[str, Any]]) -> Path:
    """A zarr group with one array in six chunks, each a file."""
    values = ARRAYS["a/kernel"]
    metadata = {
        "shape": list(values.shape),
        "data_type": "float32",
        "codecs": codecs,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [200, 100]}},
    }
    spec = {"driver": "zarr3", "kvstore": f"file://{path}/w/", "metadata": metadata}
    ts.open(spec, create=True).result()[...].write(values).result()
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    return path


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("link_mode", ["hardlink", "copy"])
def test_a_source_whose_chunk_is_cut_short_is_an_error(codec: str, link_mode: str, tmp_path: Path) -> None:
    """Its index takes the chunk for whole; Orbax could not restore what would be written."""
    source = zarr_of(tmp_path / "source.zarr", CODECS[codec])
    chunk = source / "w" / "c" / "1" / "2"
    os.truncate(chunk, chunk.stat().st_size - 3)
    with pytest.raises(SourceError, match=r"^`w`, chunk \(1, 2\): it .*c/1/2, at byte 0\)") as caught:
        ckpt_surgery.convert(source, tmp_path / "out", link_mode=link_mode)
    assert caught.value.exit_code == 1
    assert names(tmp_path) == ["source.zarr"]


def test_linked_chunks_are_checked_by_a_few_bytes(tmp_path: Path) -> None:
    source = zarr_of(tmp_path / "source.zarr", CODECS["zstd"])
    result = ckpt_surgery.convert(source, tmp_path / "out", link_mode="hardlink")
    assert (result.verified.bytes_read, result.verified.bytes_not_read) == (0, 480_000)
    result = ckpt_surgery.convert(source, tmp_path / "read", link_mode="hardlink", verify="full")
    assert (result.verified.bytes_read, result.verified.bytes_not_read) == (480_000, 0)
    # A damaged block between two headers: only reading tells.
    chunk = source / "w" / "c" / "0" / "0"
    flip(chunk, 5000)  # in what Huffman codes describe
    data = bytearray(chunk.read_bytes())
    data[12:3000] = bytes(2988)
    chunk.write_bytes(data)
    ckpt_surgery.convert(source, tmp_path / "damaged", link_mode="hardlink")
    with pytest.raises(VerificationError, match=r"`w`, chunk \(0, 0\): its chunk c/0/0 .* cannot be decoded"):
        ckpt_surgery.convert(source, tmp_path / "full", link_mode="hardlink", verify="full")
    assert "full" not in names(tmp_path)


def test_a_linked_file_that_is_deleted_from_the_result(
    source: Path, before_verification: BeforeVerification
) -> None:
    before_verification(lambda product: data_files(product)[0].unlink())
    with pytest.raises(VerificationError, match="is missing") as caught:
        ckpt_surgery.convert(source, source.with_name("out"), link_mode="hardlink")
    assert_refused(caught.value, source.parent, "out")


# --- what the record is not part of -----------------------------------------------------------------------


def test_a_disk_that_is_full_when_the_record_is_written(
    source: Path, doubled: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrbaxSink, "record", raising(lambda: StorageError("no space")))
    with pytest.raises(StorageError, match="no space"):
        doubled("out")
    assert "out" not in names(source.parent)
