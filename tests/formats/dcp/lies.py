"""Distributed checkpoints of PyTorch that are not what they say, and how they are made."""

import os
import shutil
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from tests.formats.dcp.parts import (
    DATA,
    LAYOUT,
    METADATA,
    OBJECT,
    VALUE,
    Parts,
    archive,
    described,
    index,
    place,
    properties,
    record,
    usual,
)
from tests.formats.torch.pickles import Call, Name, Raw, code, document
from tests.support.conformance import Lie

HALVES = [((0, 0), (2, 6)), ((2, 0), (2, 6))]
THREE = ((0, 0), (3, 6))
SYSTEM = Name("os", "system")
SPARSE = Call(LAYOUT.function, ("torch.sparse_coo",))
NAMELESS = Raw(b"}(" + code(index(None)) + b"K\x01u")
INT32 = {"properties": properties("int32"), "size": (4,)}


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


def metadata(reason: str, says: str, value: Any) -> Lie:
    """Another value in place of all metadata."""
    return damage(reason, says, lambda path: (path / ".metadata").write_bytes(document(value)))


def more(reason: str, says: str, value: Any) -> Lie:
    """A value in a field of the metadata that is not needed."""
    return fields(reason, says, storage_meta=value)


def deflated() -> bytes:
    """An archive of the first chunk whose data is compressed."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(archive(torch.from_numpy(VALUE[:2].copy())))) as found:
        members = {name: found.read(name) for name in found.namelist()}
    with zipfile.ZipFile(out, "w") as file:
        for name, data in members.items():
            file.writestr(name, data, zipfile.ZIP_DEFLATED if name.endswith("data/0") else None)
    return out.getvalue()


def link_out(name: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        shutil.move(path / name, path.parent / "elsewhere")
        (path / name).symlink_to(path.parent / "elsewhere")

    return change


def resized(name: str, size: int) -> Callable[[Path], object]:
    """Negative: so many bytes less."""

    def change(path: Path) -> None:
        os.truncate(path / name, size if size >= 0 else (path / name).stat().st_size + size)

    return change


def pipe(path: Path) -> None:
    (path / DATA).unlink()
    os.mkfifo(path / DATA)


def many_chunks(parts: Parts) -> None:
    """Of one element, along each of eight axes."""
    parts.entries["x"] = described("int8", (2,) * 8, [((i,) * 8, (1,) * 8) for i in range(2)])
    parts.places |= {("x", (i,) * 8): (DATA, 0, 1) for i in range(2)}


def long_paths(parts: Parts) -> None:
    """One path of a megabyte, for three hundred objects."""
    parts.entries = dict.fromkeys((str(i) for i in range(300)), OBJECT)
    parts.places = {(name, None): parts.places["step", None] for name in parts.entries}
    shared = Raw(code(("x" * 2**20,)) + b"q\x01")
    parts.paths = {name: Raw(b"h\x01") if name != "0" else shared for name in parts.entries}


MADE = Raw(code(Name(METADATA, "StorageMeta")) + code((1,)) + b"\x81")
PICKLES = (
    damage("an empty file", r"\.metadata: it is not a valid pickle", resized(".metadata", 0)),
    damage("200 megabytes", "209715200 bytes; 134217728 is the limit", resized(".metadata", 200 << 20)),
    damage("no metadata", "does not exist\n.*written last", lambda p: (p / ".metadata").unlink()),
    damage("metadata elsewhere", "outside the checkpoint", link_out(".metadata")),
    metadata("metadata that runs a command", "asks for `os.system`, which metadata", Call(SYSTEM, ("x",))),
    metadata("metadata that is a dictionary", "type dict, not an instance", {}),
    metadata("metadata of another class", "instance of .*StorageMeta`, not", record("StorageMeta", {})),
    more("a command beside what is needed", "asks for `posix.system`", Call(Name("posix", "system"), ("x",))),
    more("a class that is called", "it calls `.*metadata.Metadata`", Call(Name(METADATA, "Metadata"), ())),
    more("an instance made with arguments", "makes an instance of `.*StorageMeta`", MADE),
    more("something persistent", "asks for a value of type str outside of it", Raw(code("x") + b"Q")),
)
TENSORS = (
    entry("no description", "`w`: its description is a value of type NoneType", None),
    tensor("no dtype", "its dtype is a value of type None", properties=record("TensorProperties", (None,))),
    tensor("a sparse layout", "has the layout `torch.sparse_coo`", properties=properties("int32", SPARSE)),
    tensor("no properties", "record of its properties is a value of type NoneType"),
    tensor("no size", "its size is not a shape", properties=properties("int32")),
    entry("a size that is negative", "do not fit", described("int32", (4, -6), HALVES)),
    entry("a size beyond all memory", "`w`: it has a shape beyond all", described("int32", (2**62,), [])),
    entry("a petabyte", "`w`: no chunk has the element .3, 0.", described("int32", (2**48, 6), [THREE])),
    entry("too many axes", "has 40 axes; 32 is the limit", described("int32", (1,) * 40, [])),
    tensor("chunks that are no list", "its chunks are not a list", **INT32, chunks=None),
    tensor("a chunk that is a tuple", "a chunk is a value of type tuple", **INT32, chunks=[(0, 4)]),
    entry("an object in place of a tensor", "does not have its place", OBJECT),
    entry("another dtype", "float32.2,6., but .* int32.2,6. at byte 0", described("float32", (4, 6), HALVES)),
    chunks("a chunk beyond the end", r"of \[3, 6\] at \[2, 0\] is not within", HALVES[0], ((2, 0), (3, 6))),
    chunks("a chunk of fewer axes", "is not within", HALVES[0], ((2,), (2,))),
    chunks("a chunk twice", r"2 chunks have the element \[0, 0\] of \[4, 6\]: those of", HALVES[0], *HALVES),
    chunks("a hole", r"no chunk has the element \[2, 0\] of \[4, 6\]", HALVES[0], ((3, 0), (1, 6))),
    chunks("no chunk", r"no chunk has the element \[0, 0\]"),
    chunks("another shape", r"of \[3, 6\] at \[0, 0\] is int32\[3,6\], but", THREE, ((3, 0), (1, 6))),
    lie("a chunk without a place", r"of its chunk at \[2, 0\]", lambda p: p.places.pop(("w", (2, 0)))),
    lie("as many chunks as no one has", "are too many to check", many_chunks),
)
ZSTD = place(DATA, 0, 9, transform_descriptors=["zstd"])
PLACES = (
    placed("a file outside", "should be in `../x`, which is not a plain file name", ("../x", 0, 9)),
    placed("a file of an absolute path", "`/etc/passwd`, which is not a plain", ("/etc/passwd", 0, 9)),
    placed("a file of a backslash", "not a plain", ("a\\b", 0, 9)),
    placed("the directory above", "not a plain", ("..", 0, 9)),
    placed("a name that is no Unicode", "surrogate", ("\ud800", 0, 9)),
    placed("a file that is missing", "cannot be read: No such file", ("__9_0.distcp", 0, 9)),
    placed("a name that is too long", "not a plain file name", ("x" * 5000, 0, 9)),
    placed("an offset beyond the end", "but a chunk ends at byte 4611686018427387913", (DATA, 2**62, 9)),
    placed("a negative offset", "not a file, an offset and a length", (DATA, -1, 9)),
    placed("an offset that is a truth", "not a file, an offset and a length", (DATA, True, 9)),
    placed("no length", "from byte 0 on: is not a zip archive", (DATA, 0, 0)),
    placed("a place that is too short", "no end of a zip archive", (DATA, 0, 1500)),
    placed("the place of the other chunk and the next", "its archive", (DATA, 0, 3000)),
    placed("a place that is a tuple", "its place is a value of type tuple", Raw(code((1, 2)))),
    placed("a transform", r"transforms \(zstd\), which are not undone\n.*without `_extensions`", ZSTD),
    fields("places by names", "a key of `storage_data` is a value", storage_data={"w": 1}),
    fields("a place of no name", "not have a name and offsets", storage_data=NAMELESS),
    fields("entries that are a list", "not a dictionary by names", state_dict_metadata=[]),
    damage("a data file elsewhere", "outside the checkpoint", link_out(DATA)),
    damage("a data file that is a pipe", "not a regular file", pipe),
    damage("a data file cut by one byte", "but a chunk ends at byte", resized(DATA, -1)),
)
ARCHIVES = (
    stored("an archive with compressed data", "data/0` is compressed, which torch never", deflated()),
    stored("an archive of a number", "but .* has a value of type int", 3),
    stored("an archive of a function", "asks for `posix.system`", os.system),
    stored("bytes of no kind", "is not a zip archive", b"\xff" * 2000),
)
KEYS = (
    path("a path that is a text", "`w`: its path in `planner_data`", "a.b"),
    path("a path of nothing", "its path in `planner_data`", ()),
    path("a path with a negative index", "its path in `planner_data`", ("a", -1)),
    path("a path of many components", "nested more than 64 deep", ("a",) * 65),
    path("a path that is no Unicode", "`w`: has half of a surrogate", ("\ud800",)),
    lie("one path twice", r"`a\\/b`: two leaves", lambda p: p.paths.update(w=("a", "b"), step=("a/b",))),
    lie("one path of a megabyte, three hundred times", "keys are longer together", long_paths),
)
LIES = (*PICKLES, *TENSORS, *PLACES, *ARCHIVES, *KEYS)
