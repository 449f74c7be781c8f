"""How distributed checkpoints of PyTorch are made that are not what they say."""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.formats.dcp.parts import DATA, OBJECT, VALUE, Parts, archive, described, record, usual
from tests.formats.torch.pickles import Name, Raw, code
from tests.support.conformance import Lie

HALVES = [((0, 0), (2, 6)), ((2, 0), (2, 6))]
SYSTEM = Name("os", "system")


def lie(reason: str, says: str, change: Callable[[Parts], object]) -> Lie:
    """The usual checkpoint after a change of its parts."""

    def make(directory: Path) -> Path:
        parts = usual()
        change(parts)
        return parts.write(directory / "saved")

    return Lie(reason, make, says)


def damage(reason: str, says: str, change: Callable[[Path], object]) -> Lie:
    """The usual checkpoint after a change of its files."""

    def make(directory: Path) -> Path:
        path = usual().write(directory / "saved")
        change(path)
        return path

    return Lie(reason, make, says)


def entry(reason: str, says: str, value: Any) -> Lie:
    """Another description of the array."""
    return lie(reason, says, lambda parts: parts.entries.update(w=value))


def tensor(reason: str, says: str, **state: Any) -> Lie:
    """Another state of the array's description."""
    return entry(reason, says, record("TensorStorageMetadata", state))


def path(reason: str, says: str, names: Any) -> Lie:
    """Another path of the array."""
    return lie(reason, says, lambda parts: parts.paths.update(w=names))


def fields(reason: str, says: str, **values: Any) -> Lie:
    """Other fields of the metadata."""
    return lie(reason, says, lambda parts: parts.more.update(values))


def chunks(reason: str, says: str, *found: tuple[Any, Any]) -> Lie:
    """Other offsets and sizes, which have places."""

    def change(parts: Parts) -> None:
        parts.entries["w"] = described("int32", (4, 6), found)
        for offsets, _ in found:
            parts.places.setdefault(("w", offsets), parts.places["w", (0, 0)])

    return lie(reason, says, change)


def placed(reason: str, says: str, value: Any) -> Lie:
    """Another place of the first chunk."""
    return lie(reason, says, lambda parts: parts.places.update({("w", (0, 0)): value}))


def stored(reason: str, says: str, value: Any) -> Lie:
    """Another archive for the first chunk."""

    def change(parts: Parts) -> None:
        data = value if isinstance(value, bytes) else archive(value)
        parts.places["w", (0, 0)] = (DATA, len(parts.files[DATA]), len(data))
        parts.files[DATA] += data

    return lie(reason, says, change)


def metadata(reason: str, says: str, data: bytes) -> Lie:
    return damage(reason, says, lambda path: (path / ".metadata").write_bytes(data))


def more(reason: str, says: str, value: Any) -> Lie:
    """A value in a field of the metadata that is not needed."""
    return fields(reason, says, storage_meta=value)


def deflated() -> bytes:
    """An archive of the first chunk whose data is compressed."""
    from io import BytesIO

    out = BytesIO()
    with (
        zipfile.ZipFile(BytesIO(archive(torch.from_numpy(VALUE[:2].copy())))) as found,
        zipfile.ZipFile(out, "w") as file,
    ):
        for name in found.namelist():
            method = zipfile.ZIP_DEFLATED if name.endswith("data/0") else zipfile.ZIP_STORED
            file.writestr(name, found.read(name), method)
    return out.getvalue()


def sparse(path: Path) -> None:
    os.truncate(path / ".metadata", 200 * 2**20)


def link_out(path: Path) -> None:
    shutil.move(path / DATA, path.parent / "elsewhere")
    (path / DATA).symlink_to(path.parent / "elsewhere")


def link_metadata_out(path: Path) -> None:
    shutil.move(path / ".metadata", path.parent / "elsewhere")
    (path / ".metadata").symlink_to("../elsewhere")


def pipe(path: Path) -> None:
    (path / DATA).unlink()
    os.mkfifo(path / DATA)


def cut(path: Path, name: str, less: int) -> None:
    os.truncate(path / name, (path / name).stat().st_size - less)


def long_paths(parts: Parts) -> None:
    """One path of a megabyte, for three hundred objects."""
    parts.entries = dict.fromkeys((str(i) for i in range(300)), OBJECT)
    parts.places = {(name, None): parts.places["step", None] for name in parts.entries}
    shared = Raw(code(("x" * 2**20,)) + b"q\x01")
    parts.paths = {name: Raw(b"h\x01") if name != "0" else shared for name in parts.entries}
