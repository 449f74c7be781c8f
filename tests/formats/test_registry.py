"""Which format a path has, what is said of others, and formats from elsewhere."""

import importlib.metadata
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.known import FOREIGN
from ckpt_surgery.formats.registry import Format, SinkOptions
from tests.support.toy_format import toy
from tests.support.writing import leaf_of, output_of


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Formats of other packages, found through their entry points."""
    original = importlib.metadata.entry_points

    def offered(*offers: Format) -> None:
        entries = [
            SimpleNamespace(name=offer.name, value=f"garage.{offer.name}", load=lambda offer=offer: offer)
            for offer in offers
        ]
        monkeypatch.setattr(
            importlib.metadata,
            "entry_points",
            lambda **query: entries if query == {"group": "ckpt_surgery.formats"} else original(**query),
        )
        formats.formats.cache_clear()

    yield offered
    formats.formats.cache_clear()


@pytest.fixture
def car(install: Callable[..., None]) -> Format:
    made = toy("car")
    install(made, toy("truck"))
    return made


# --- what is known ----------------------------------------------------------------------------------


def test_entry_points_add_formats(car: Format, tmp_path: Path) -> None:
    (tmp_path / "x.car").write_bytes(b"")
    assert opening.detect_format(str(tmp_path / "x.car")) is car
    with pytest.raises(SourceError, match=r"^x\.car has no wheels$"):
        opening.open_source(str(tmp_path / "x.car"))
    with pytest.raises(
        UsageError, match=r"`car` can be read but not written\n  Formats to write: .*orbax, safetensors"
    ):
        opening.open_sink("car", tmp_path, SinkOptions(), [])


@pytest.mark.parametrize(
    ("name", "first"),
    [("npy", "ckpt_surgery.formats.npy"), ("car", "the entry point car = garage.car")],
)
def test_two_formats_of_one_name_are_told(install: Callable[..., None], name: str, first: str) -> None:
    install(toy("car"), toy("truck"), toy(name))
    with pytest.raises(UsageError) as caught:
        formats.formats()
    assert str(caught.value) == (
        f"Two formats are called `{name}`: that of {first}, "
        f"and that of the entry point {name} = garage.{name}\n"
        "  Rename one of them, or uninstall the package that it comes with."
    )


def test_every_folder_with_a_format_is_found() -> None:
    folder = Path(formats.__file__).parent
    names = {path.parent.name for path in folder.glob("*/__init__.py") if "FORMAT = " in path.read_text()}
    assert names == {name for name in formats.formats() if (folder / name).is_dir()}
    assert "orbax" in names


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Not a format: `orbaks`; did you mean `orbax`\?"):
        opening.encoder("orbaks", SinkOptions())
    with pytest.raises(UsageError, match="Not a format: `orbaks`"):
        opening.open_source(str(tmp_path), "orbaks")


# --- detection --------------------------------------------------------------------------------------


def test_several_formats_are_told_with_their_files(car: Format, tmp_path: Path) -> None:
    for name in ("a.car", "b.car", "c.car", "x\x1b.truck", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(SourceError) as caught:
        opening.open_source(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path} holds checkpoints of several formats: "
        "car (a.car, b.car, …); truck (x\\x1b.truck)\n"
        "  Name the file that is meant, or its format: `src_format=NAME` (`inspect`: `format=NAME`)."
    )
    with pytest.raises(SourceError, match="has no wheels"):
        opening.open_source(str(tmp_path), "car")


def test_a_directory_around_checkpoints_names_them(car: Format, tmp_path: Path) -> None:
    for name in ("one/x.car", "two/x.car", "three/x.truck"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(SourceError) as caught:
        opening.open_source(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path} is not a checkpoint itself, but holds some: one, two (car); three (truck)\n"
        "  Name one of them."
    )


# --- a format that was named ------------------------------------------------------------------------


def test_the_wrong_format_is_told_with_the_right_one(car: Format, tmp_path: Path) -> None:
    (tmp_path / "x.truck").touch()
    with pytest.raises(SourceError) as caught:
        opening.open_source(str(tmp_path / "x.truck"), "car")
    assert str(caught.value) == (
        f"{tmp_path}/x.truck cannot be read as car; it looks like truck: x.truck has no wheels\n"
        "  Name that format, or none."
    )


def test_the_right_format_says_itself_what_is_wrong(car: Format, tmp_path: Path) -> None:
    for name in ("x.car", "unknown"):
        (tmp_path / name).write_bytes(b"\0\1\2")
        with pytest.raises(SourceError) as caught:
            opening.open_source(str(tmp_path / name), "car")
        assert str(caught.value) == f"{name} has no wheels"
    with pytest.raises(SourceError, match=r"unknown is not a checkpoint of a known format\n.*orbax"):
        opening.open_source(str(tmp_path / "unknown"))


def test_placeholders_are_told_though_they_have_the_names(car: Format, tmp_path: Path) -> None:
    (tmp_path / "x.car").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    for format in (None, "car"):
        with pytest.raises(SourceError) as caught:
            opening.open_source(str(tmp_path / "x.car"), format)
        assert str(caught.value) == (
            f"{tmp_path}/x.car cannot be read as car; it looks like a Git LFS pointer: x.car has no wheels\n"
            "  The file itself was not downloaded: run `git lfs pull` in its repository."
        )
        with pytest.raises(SourceError, match=r"a directory with a Git LFS pointer in place of x\.car: "):
            opening.open_source(str(tmp_path), format)


def test_a_format_that_reads_what_others_claim_is_obeyed(tmp_path: Path) -> None:
    save_file({"a": np.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "_METADATA").write_text("{}")
    assert list(opening.open_source(str(tmp_path), "safetensors").leaves()) == ["a"]
    with pytest.raises(
        SourceError, match=r"several formats: orbax(?! \()(.|\n)*safetensors \(model\.safetensors\)"
    ):
        opening.open_source(str(tmp_path))


# --- destinations -----------------------------------------------------------------------------------


@pytest.fixture
def named(install: Callable[..., None], tmp_path: Path) -> None:
    install(
        toy("car", suffixes=(".car", ".race.car"), is_file=lambda name: name.endswith(".car"), writable=True),
        toy("lorry", suffixes=(".long.car",), options=("shard_size",), holds_metadata=False, writable=True),
        toy("wreck", suffixes=(".truly.long.car",)),
    )


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("x.car", "car"),
        ("X.CAR", "car"),
        ("x.race.car", "car"),
        ("x.long.car", "lorry"),  # the longest suffix
        ("x.truly.long.car", "wreck"),  # only read: to be refused, not to be written as another
        ("x.safetensors", "safetensors"),
        ("x", None),
        ("x.car.old", None),
    ],
)
@pytest.mark.usefixtures("named")
def test_a_name_says_the_format(name: str, format: str | None) -> None:
    assert formats.format_for(name) == format


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("y.pt", "torch"),
        ("y.npy", "npy"),
        ("y.truly.long.car", "wreck"),
        ("y.gguf", "gguf"),
        ("Y.GGUF", "gguf"),
        ("y.safetensors.gz", "an archive"),
        ("y.tar.gz", "an archive"),
        ("y.onnx/", "a model in another program's format"),
    ],
)
@pytest.mark.usefixtures("named")
def test_names_of_what_is_not_written_are_refused(name: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        formats.check_name(f"out/{name}")
    assert caught.value.problems[0].message == f"out/{name}: its name says {what}, which cannot be written"
    assert "safetensors" in str(caught.value.problems[0].hint)


@pytest.mark.usefixtures("named")
def test_other_names_are_fine() -> None:
    for name in ("y", "gguf", "y.v1", "step.100", "y.safetensors", "y.npz", "y.msgpack", "y.zarr", "y.car"):
        formats.check_name(f"models.gguf/{name}")


def test_every_suffix_is_one_formats_own_or_another_programs() -> None:
    own = [suffix for known in formats.formats().values() for suffix in known.suffixes]
    assert len(set(own)) == len(own)
    assert set(own).isdisjoint(FOREIGN)
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in FOREIGN)


@pytest.mark.usefixtures("named")
def test_encoders_and_sinks_are_made_once_options_and_destination_are_accepted(tmp_path: Path) -> None:
    made = opening.encoder("car", SinkOptions())
    assert made.unsupported([leaf_of("door", np.ones(2))]) == ["`door` is too heavy"]
    with pytest.raises(UsageError, match="it has no zarr"):
        opening.encoder("car", SinkOptions(zarr=2))
    with pytest.raises(UsageError, match="`wreck` can be read but not written"):
        opening.encoder("wreck", SinkOptions())
    outputs = [output_of("door", np.ones(2))]
    assert opening.open_sink("car", tmp_path, SinkOptions(), outputs) == (tmp_path, SinkOptions(), outputs)
    with pytest.raises(UsageError, match="it has no zarr"):
        opening.open_sink("car", tmp_path, SinkOptions(zarr=2), outputs)
    with pytest.raises(UsageError, match="it cannot swim"):
        opening.open_sink("car", tmp_path / "river", SinkOptions(), outputs)


@pytest.mark.parametrize("name", formats.formats())
def test_steps_items_and_options_are_for_formats_that_have_them(name: str, tmp_path: Path) -> None:
    known, given = formats.format_named(name), {"step": 3, "item": "default", "shard_size": 5}
    for choice in {"step", "item"}.difference(known.choices):
        with pytest.raises(UsageError, match=f": {name} checkpoints have no {choice}s"):
            opening.open_source(str(tmp_path), name, **{choice: given[choice]})  # type: ignore[arg-type]
    for option in set(given).difference(known.options) if known.writable else ():
        with pytest.raises(UsageError, match=f"^{name} checkpoints have no "):
            opening.encoder(name, SinkOptions(**{option: given[option]}))  # type: ignore[arg-type]
