"""Which paths are a format's by its names, and which file of a directory is meant."""

import re
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.registry import Names, claims
from ckpt_surgery.storage.reading import OpenFile

CAR = b"car!"


def begins(file: OpenFile) -> bool | None:
    """True for cars, False for trucks; names tell of the others."""
    head = file.read(0, min(4, file.stat.size))
    return True if head == CAR else False if head == b"truc" else None


SHARD = re.compile(r"-(\d+)-of-(\d+)\.car\Z")
PLAIN = Names("cars", begins, (".car",))
INDEXED = Names("cars", begins, (".car",), ".car.json", ("model.car", "model.car.json"), SHARD)
SPLIT = Names("cars", begins, (".car",), shard=SHARD, others=(".bus",))
USUAL = Names("cars", begins, index=".car.json", usual=("model.car", "model.car.json"), shard=SHARD)


def files(directory: Path, *names: str) -> str:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).touch()
    return str(directory)


@pytest.mark.parametrize(
    ("name", "content", "known"),
    [
        ("x", CAR, True),
        ("x.bus", CAR, True),
        ("x.car", b"", True),
        ("X.CAR", b"", True),
        ("x.car", b"truck", False),
        ("x", b"", False),
        ("x.car.json", b"", True),
    ],
)
def test_a_file_is_known_by_its_beginning_or_else_by_its_name(
    name: str, content: bytes, known: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert INDEXED.detect(str(tmp_path / name)) == known


def test_what_cannot_be_read_is_nobodys(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        INDEXED.detect(str(tmp_path / "missing.car"))
    assert not claims(INDEXED.detect, str(tmp_path / "missing.car"))
    assert not claims(INDEXED.detect, str(tmp_path / "missing.car.json"))


@pytest.mark.parametrize(
    ("names", "listed", "known"),
    [
        (PLAIN, ("x.car", "notes"), True),
        (PLAIN, ("notes",), False),
        (Names("cars", begins, (".car",), alone=True), ("x.car",), True),
        (Names("cars", begins, (".car",), alone=True), ("x.car", "notes"), False),
        (SPLIT, ("x.car", "notes"), True),
        (SPLIT, ("x.car", "y.bus"), False),
        (USUAL, ("model.car", "x.bus"), True),
        (USUAL, ("other.car",), False),
        (USUAL, ("model-1-of-2.car",), True),
    ],
)
def test_a_directory_is_known_by_its_names(
    names: Names, listed: tuple[str, ...], known: bool, tmp_path: Path
) -> None:
    assert names.detect(files(tmp_path / "d", *listed)) == known


@pytest.mark.parametrize(
    ("names", "listed", "chosen"),
    [
        (PLAIN, ("x.CAR", "notes"), "x.CAR"),
        (INDEXED, ("model.car", "other.car", "other.car.json"), "model.car"),
        (INDEXED, ("a.car", "b.car", "some.car.json"), "some.car.json"),
        (INDEXED, ("a-00001-of-00001.car",), "a-00001-of-00001.car"),
        (SPLIT, ("a-00002-of-00003.car", "a-00003-of-00003.car"), "a-00001-of-00003.car"),
        (USUAL, ("model.car.json", "x.car", "y.car"), "model.car.json"),
    ],
)
def test_the_file_that_stands_for_a_directory(
    names: Names, listed: tuple[str, ...], chosen: str, tmp_path: Path
) -> None:
    directory = files(tmp_path / "d", *listed)
    assert names.file_of(directory) == (directory, chosen)
    assert names.file_of("a/b.car") == ("a", "b.car")


@pytest.mark.parametrize(
    ("names", "listed", "says"),
    [
        (PLAIN, ("a.car", "b.car", "c.car", "d.car"), r"holds 4 cars: a\.car, b\.car, c\.car, …\n  Name the"),
        (PLAIN, (), r"holds 0 cars\n  Name the file that is meant"),
        (INDEXED, ("model.car", "model.car.json"), r"holds 2 cars: model\.car, model\.car\.json\n"),
        (
            INDEXED,
            ("a-1-of-2.car", "a-2-of-2.car"),
            r"holds shards \(a-1-of-2\.car, a-2-of-2\.car\) without their index model\.car\.json\n",
        ),
        (INDEXED, ("a-1-of-2.car",), "without their index"),
        (USUAL, ("a-1-of-2.car", "b.car"), r"holds shards \(a-1-of-2\.car\) without their index"),
        (USUAL, ("b.car",), r"holds 0 cars with a name such as model\.car\n"),
        (SPLIT, ("a-1-of-2.car", "a-2-of-2.car", "b.car"), r"holds 2 cars: a-1-of-2\.car, b\.car\n"),
    ],
)
def test_what_is_unclear_is_told_with_the_names(
    names: Names, listed: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match=says):
        names.file_of(files(tmp_path / "d", *listed))


def test_a_link_that_leaves_the_directory_is_refused(tmp_path: Path) -> None:
    directory = files(tmp_path / "d")
    (tmp_path / "d" / "x.car").symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match="outside the checkpoint"):
        PLAIN.file_of(directory)
