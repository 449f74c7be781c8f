"""HDF5 files that are not what they say, or that lead out of themselves."""

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from tests.support.conformance import Lie

Build = Callable[[h5py.File], object]
Change = Callable[[bytes], bytes]


def lie(reason: str, says: str, build: Build, change: Change | None = None) -> Lie:
    """A file with two good arrays, and what `build` makes of it; then its bytes are changed."""

    def make(directory: Path) -> Path:
        path = directory / "x.h5"
        with h5py.File(path, "w") as file:
            file["a"] = np.ones(3, np.float32)
            build(file)
            file["z"] = np.ones(3, np.float32)
        if change is not None:
            before = path.read_bytes()
            path.write_bytes(change(before))
            assert path.read_bytes() != before
        return path

    return Lie(reason, make, says)


def chunk_lie(reason: str, says: str, data: bytes, nbytes: int = 1000, **how: object) -> Lie:
    """An array of one chunk of bytes, and what is stored for it."""

    def build(file: h5py.File) -> None:
        made = file.create_dataset("x", (nbytes,), "u1", chunks=(nbytes,), **how)
        made.id.write_direct_chunk((0,), data)

    return lie(reason, says, build)


gzip_lie = partial(chunk_lie, compression="gzip")


def replaced(old: int, new: int, width: int = 8) -> Change:
    """Every number of that value becomes another one."""
    return lambda data: data.replace(old.to_bytes(width, "little"), new.to_bytes(width, "little"))


def dataset(*what: object, **how: object) -> Build:
    return lambda file: file.create_dataset("x", *what, **how)


def linked(link: object) -> Build:
    return lambda file: file.update(x=link)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource("/etc/other.h5", "x", (3,))
    file.create_virtual_dataset("x", layout)


def unfiltered(file: h5py.File) -> None:
    made = file.create_dataset("x", (8,), "u1", chunks=(8,), compression="gzip")
    made.id.write_direct_chunk((0,), bytes(range(8)), 1)


def cycle(file: h5py.File) -> None:
    file["g/h/x"] = np.ones(2)
    file["g/h/g"] = file["g"]


def diamond(file: h5py.File) -> None:
    """2 to the power of 40 paths to one array."""
    for i in range(40):
        file.create_group(f"g{i}")
        if i:
            file[f"g{i}/l"] = file[f"g{i}/r"] = file[f"g{i - 1}"]
    file["g0/x"] = np.ones(2)


def deep(file: h5py.File) -> None:
    file["/".join("x" * 300)] = np.ones(2)


def odd_name(file: h5py.File) -> None:
    h5py.h5g.create(file.id, b"\xff\xfe")


def unknown_filter(file: h5py.File) -> None:
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((10,))
    made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((10,))
    h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, space, made)


def booleans(file: h5py.File) -> None:
    made = file.create_dataset("x", (3,), "bool")
    made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([0, 1, 2], np.uint8), made.id.get_type())


def moved(data: bytes) -> bytes:
    """The address of the second chunk, in the tree of chunks, becomes one beyond the end of the file."""
    at = data.index(bytes(range(8, 16))).to_bytes(8, "little")
    tree = data.index(b"TREE\x01")
    assert data.count(at, tree) == 1
    return data[:tree] + data[tree:].replace(at, (len(data) + 10).to_bytes(8, "little"))


def without_end(data: bytes) -> bytes:
    """The free space in the heap of texts becomes one of 0 bytes: libhdf5 would go through it forever."""
    at = data.index(b"some words") + 24
    return data[:at] + bytes(8) + data[at + 8 :]


NOISE = np.random.default_rng(0).integers(0, 256, 1000, np.uint8).tobytes()
WORDS: Build = lambda file: file.attrs.update(text="some words")  # noqa: E731
ELSEWHERE = dataset((3,), "f4", external=[("/etc/hostname", 0, 12)])
HUGE = dataset((2**40, 2**40), "u1", chunks=(8, 8))
ZEROS = dataset(data=np.zeros(7777, np.uint8))
TWO_CHUNKS = dataset(data=np.arange(16, dtype=np.uint8), chunks=(8,))

LIES = (
    lie("a link to another file", "`x` is a link to another", linked(h5py.ExternalLink("/y.h5", "x"))),
    lie("elements in another file", "`x`: its elements are in other files", ELSEWHERE),
    lie("a virtual dataset", "`x`: it is a virtual dataset", virtual),
    lie("a soft link to a dataset", "`x` is a soft link, which is not read", linked(h5py.SoftLink("/a"))),
    lie("a chunk without its filters", "`x`: it has chunks that are stored without its filters", unfiltered),
    lie("a group in itself", "`g/h/g` is the same group as `g`", cycle),
    lie("the root in itself", "`x` is the root group", lambda file: file.update(x=file["/"])),
    lie("groups with two names each", "is the same group as", diamond),
    lie("groups too deep", "lies in more than 256 groups", deep),
    lie("a name that is not UTF-8", r"the name b'\\xff\\xfe' in `/`", odd_name),
    lie("a filter that is not known", "`x`: it has the filter", unknown_filter),
    lie("a truth that is neither 0 nor 1", "`x`: .* has the byte 2", booleans),
    lie("a shape beyond all memory", "`x`: it has a shape beyond all memory", HUGE),
    lie("gigabytes that are not there", "`x`: .*invalid dataset size", ZEROS, replaced(7777, 1 << 32)),
    lie("a heap without end", "x.h5: the heap of the file's texts has an object of 0", WORDS, without_end),
    lie("a chunk that is not in the file", "`x`: a chunk of 8 bytes begins at byte", TWO_CHUNKS, moved),
    chunk_lie("a chunk that is too short", "`x`: a chunk of 1000 bytes is stored in 10 bytes", b"\1" * 10),
    chunk_lie("a chunk that is too long", "a chunk of 1000 bytes is stored in 1001", bytes(1001)),
    gzip_lie("a chunk that inflates to less", "`x`: a chunk inflates to 10 bytes", zlib.compress(b"\1" * 10)),
    gzip_lie(
        "a chunk that inflates to more", "inflates to 1001 bytes and does not", zlib.compress(bytes(9999))
    ),
    gzip_lie("a bomb", "a chunk of 1073741824 bytes is stored in 1000 bytes", bytes(1000), nbytes=1 << 30),
    gzip_lie("a stream that is none", "cannot be inflated", NOISE),
    gzip_lie("a stream without its end", "does not end", zlib.compress(NOISE, 0)[:-3]),
)
