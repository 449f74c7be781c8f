"""Headers of MessagePack: every form that the msgpack package writes, and counts that cannot be right."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.msgpack.heads import PAGE_BYTES, Head, Kind, Reader
from ckpt_surgery.storage.reading import opened


@contextmanager
def reader(path: Path, data: bytes, end: int | None = None) -> Iterator[Reader]:
    """A reader of a document that begins after 3 bytes."""
    path.write_bytes(b"???" + data)
    with opened(str(path)) as file:
        yield Reader(file, 3, 3 + len(data) if end is None else end)


@pytest.mark.parametrize(
    ("value", "kind", "size"),
    [
        *((n, Kind.PLAIN, n) for n in (0, 127, 128, 2**16, 2**64 - 1, -1, -32, -33, -(2**63), 1.5)),
        *((value, Kind.PLAIN, value) for value in (None, True, False)),
        *(("x" * n, Kind.TEXT, n) for n in (0, 31, 32, 256, 2**16)),
        *((b"x" * n, Kind.BYTES, n) for n in (0, 255, 256, 2**16)),
        *(([0] * n, Kind.LIST, n) for n in (0, 15, 16, 2**16)),
        *((dict.fromkeys(range(n), 0), Kind.MAP, n) for n in (0, 15, 16, 2**16)),
        *((msgpack.ExtType(1, b"x" * n), Kind.EXTENSION, n) for n in (0, 1, 2, 3, 4, 8, 16, 17, 256, 2**16)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_every_form_of_a_header_is_read(value: Any, kind: Kind, size: Any, tmp_path: Path) -> None:
    with reader(tmp_path / "x", msgpack.packb(value)) as found:
        head = found.head()
    assert head == Head(kind, size)
    assert type(head.value) is type(size)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xdd\0\0\0\3\0\0", "a list says that it has 3 members, and 2 bytes are left"),
        (b"\xde\0\2\0\0\0", "a map says that it has 2 members, and 3 bytes are left"),  # two bytes for each
        (b"\xa3xx", "a string says that it has 3 bytes, and 2 bytes are left"),
        (b"\xc1", "the byte 0xc1 begins nothing"),
        (b"\xcb\0", "8 bytes belong here, and 1 are left"),
        (b"", "1 bytes belong here, and 0 are left"),
    ],
)
def test_headers_that_cannot_be_right_are_refused_with_the_offset(
    data: bytes, says: str, tmp_path: Path
) -> None:
    with reader(tmp_path / "x", data) as found, pytest.raises(SourceError, match=rf"^byte \d: {says}"):
        found.head()


def test_the_end_of_the_document_counts_and_not_that_of_the_file(tmp_path: Path) -> None:
    with (
        reader(tmp_path / "x", b"\xa2xy", end=5) as found,
        pytest.raises(SourceError, match="1 bytes are left"),
    ):
        found.head()


def test_bytes_are_taken_across_windows_and_after_jumps(tmp_path: Path) -> None:
    data = bytes(i % 251 for i in range(4 * PAGE_BYTES))
    with reader(tmp_path / "x", data) as found:
        assert found.take(1) == data[:1]
        assert found.take(2 * PAGE_BYTES) == data[1 : 1 + 2 * PAGE_BYTES]  # more than a window
        found.at += PAGE_BYTES  # over an array
        at = 1 + 3 * PAGE_BYTES
        assert found.take(10) == data[at : at + 10]
        assert found.take(PAGE_BYTES - 11) == data[at + 10 :]
        assert found.at == 3 + len(data)
