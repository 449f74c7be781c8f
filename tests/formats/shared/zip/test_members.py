"""Zip archives against Python's zipfile and torch: what is read, and what is refused."""

import errno
import io
import os
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.zip.members import (
    LOCAL_FIELDS,
    Inflated,
    first_name,
    read_archive,
    read_member,
)
from ckpt_surgery.storage.reading import opened
from tests.formats.bounds import bounded
from tests.support.conformance import SLACK_BYTES
from tests.support.effort import examples
from tests.support.failing import refusing
from tests.support.strategies import Damages, damaged, damages

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
NOISE = random.Random(0).randbytes(300_000)
TEXT = b"0123456789" * 40_000
FILES = {"a/b.npy": b"first" * 20, "empty": b"", "é λ 🙂": NOISE, "../../x": TEXT, "last": b"\0"}

CENTRAL = {
    "version": 6,
    "flags": 8,
    "method": 10,
    "crc": 16,
    "stored": 20,
    "size": 24,
    "name": 28,
    "extra": 30,
}
CENTRAL |= {"comment": 32, "disk": 34, "header": 42}
LOCAL = {"flags": 6, "method": 8, "crc": 14, "stored": 18, "size": 22, "name": 26, "extra": 28}
END = {"disk": 4, "first_disk": 6, "here": 8, "entries": 10, "length": 12, "offset": 16, "comment": 20}
"""Offsets of fields in their records."""
WIDE_FIELDS = ("crc", "stored", "size", "header", "length", "offset")
"""Fields of four bytes; the others have two."""


def archive(method: int = STORED, comment: bytes = b"", files: dict[str, bytes] = FILES) -> bytes:
    """As zipfile writes it."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as file:
        for name, data in files.items():
            file.writestr(name, data)
        file.comment = comment
    return written.getvalue()


def patched(data: bytes, record: bytes, index: int, field: str, value: int) -> bytes:
    """An archive with another number in the index-th record that begins with a signature."""
    at = -1
    for _ in range(index + 1):
        at = data.index(record, at + 1)
    fields = {b"PK\1\2": CENTRAL, b"PK\3\4": LOCAL, b"PK\5\6": END}[record]
    start, size = at + fields[field], 4 if field in WIDE_FIELDS else 2
    return data[:start] + value.to_bytes(size, "little") + data[start + size :]


def both(data: bytes, index: int, field: str, value: int) -> bytes:
    """The same number in the directory and in the member's own header."""
    return patched(patched(data, b"PK\1\2", index, field, value), b"PK\3\4", index, field, value)


def read_all(path: Path) -> dict[str, bytes]:
    with opened(os.fspath(path)) as file:
        found = read_archive(file)
        return {name: read_member(file, member, 2**30) for name, member in found.items()}


def saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# --- what is read -----------------------------------------------------------------------------------------


class Pipe(io.BytesIO):
    """What is written to a pipe: sizes come after the members."""

    seek = refusing(errno.ESPIPE)


def through_a_pipe(files: dict[str, bytes], method: int = STORED) -> bytes:
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", method) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return pipe.getvalue()


def with_wide_sizes(files: dict[str, bytes] = FILES) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for name, data in files.items():
            with file.open(name, "w", force_zip64=True) as member:
                member.write(data)
    return written.getvalue()


def test_comments_longer_than_expected_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", archive(comment=b"two words"))
    with opened(str(path)) as file:
        assert read_archive(file, most_comment=9).comment == b"two words"
        with pytest.raises(SourceError, match="it has no end of a zip archive"):
            read_archive(file, most_comment=8)


@pytest.mark.parametrize("comment", [b"", b"a comment", b"x" * 0xFFFF])
@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_members_are_what_zipfile_wrote(method: int, comment: bytes, tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", archive(method, comment))
    assert read_all(path) == FILES
    with opened(os.fspath(path)) as file:
        found = read_archive(file)
    assert found.comment == comment
    assert list(found) == list(FILES)
    assert {m.deflated for m in found.values()} == {method == DEFLATED}
    assert found["last"].crc == zlib.crc32(b"\0")


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_sizes_that_come_after_the_members(method: int, tmp_path: Path) -> None:
    assert read_all(saved(tmp_path / "x.zip", through_a_pipe(FILES, method))) == FILES


def test_wide_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_all(saved(tmp_path / "x.zip", with_wide_sizes())) == FILES
    # In the directory and at the end, as in archives beyond 4 GiB.
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 50)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    data = archive()
    assert b"PK\6\6" in data
    assert read_all(saved(tmp_path / "x.zip", data)) == FILES


def test_empty_directories_are_left_out(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", archive(files={"d/": b"", "d/a": b"1", "odd/": b"2"}))
    assert read_all(path) == {"d/a": b"1", "odd/": b"2"}


def test_names_of_other_times(tmp_path: Path) -> None:
    """Without the flag for UTF-8 they are in the code page of the IBM PC."""
    data = archive(files={"xyz": b"1"}).replace(b"xyz", b"x\x82z")
    assert read_all(saved(tmp_path / "x.zip", data)) == {"xéz": b"1"}


def test_a_deflated_member_is_read_forwards(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", archive(DEFLATED))
    rng = random.Random(0)
    with opened(os.fspath(path)) as file:
        for name in ("é λ 🙂", "../../x"):
            stream = Inflated(read_archive(file)[name])
            reader, whole = stream.within(file), FILES[name]
            while stream.position < len(whole):
                offset = min(stream.position + rng.randrange(20_000), len(whole))
                buffer = bytearray(rng.randrange(min(90_000, len(whole) - offset) + 1))
                reader.read_into(offset, memoryview(buffer))
                assert buffer == whole[offset : offset + len(buffer)]
            stream.finish(file)


def test_a_large_member_is_inflated_in_little_memory(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", archive(DEFLATED, files={"zeros": bytes(16 * 2**20)}))
    with bounded(2**20), opened(os.fspath(path)) as file:
        stream, buffer = Inflated(read_archive(file)["zeros"]), bytearray(10)
        stream.read_into(file, 16 * 2**20 - 10, memoryview(buffer))
        stream.finish(file)
        assert buffer == bytes(10)


def test_a_member_larger_than_is_wanted(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", archive())
    with opened(os.fspath(path)) as file:
        member = read_archive(file)["a/b.npy"]
        assert len(read_member(file, member, 100)) == 100
        with pytest.raises(SourceError, match=r"`a/b\.npy` has 100 bytes; 99 is the limit"):
            read_member(file, member, 99)


# --- what is refused --------------------------------------------------------------------------------------

LIST = archive(files={"a": b"12345", "b": b"678", "c": b"90"})
WIDE_LIST = with_wide_sizes({"a": b"12345"})
PACKED = archive(DEFLATED, files={"a": TEXT, "b": b"678"})
DIRECTORY = LIST.index(b"PK\1\2")


def end(entries: int, length: int, offset: int, comment: bytes = b"") -> bytes:
    return pack("<4s4H2IH", b"PK\5\6", 0, 0, entries, entries, length, offset, len(comment)) + comment


def wide_end(entries: int, length: int, offset: int, at: int, disks: int = 1) -> bytes:
    record = pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, length, offset)
    return record + pack("<4sIQI", b"PK\6\7", 0, at, disks) + end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def recompressed(stored: bytes, size: int) -> bytes:
    """One deflated member with any stored bytes, said to be `size` bytes of zeros."""
    about = (0, 8, 0, 0, zlib.crc32(bytes(min(size, 2**24))), len(stored), size)
    local = pack("<4s5H3I2H", b"PK\3\4", 20, *about, 1, 0) + b"a"
    central = pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, *about, 1, 0, 0, 0, 0, 0, 0) + b"a"
    return local + stored + central + end(1, len(central), len(local) + len(stored))


def shifted(count: int) -> bytes:
    """An archive after some other bytes, whose directory knows of them."""
    data = LIST
    for i, header in enumerate((0, 36, 70)):
        data = patched(data, b"PK\1\2", i, "header", header + count)
    return bytes(count) + patched(data, b"PK\5\6", 0, "offset", DIRECTORY + count)


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def many_wide_extras(count: int) -> bytes:
    """Local headers that each claim the 64 KiB after them for their extra field."""
    names = [b"%08d" % i for i in range(count)]
    body = b"".join(pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, 8, 0xFFF0) + name for name in names)
    directory = b"".join(
        pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 38 * i) + name
        for i, name in enumerate(names)
    )
    return body + directory + end(count, len(directory), len(body))


REFUSED = {
    "nothing": ("no end of a zip archive", b""),
    "bytes after the end": ("1 bytes follow the end of the archive, 0 belong", LIST + b"\0"),
    "a comment that is cut": ("2 bytes follow the end of the archive, 3", archive(comment=b"abc")[:-1]),
    "bytes before it, counted": ("8 bytes lie before its first member", shifted(8)),
    "a directory beyond the file": ("but ends at", patched(LIST, b"PK\5\6", 0, "length", 2**31)),
    "more members than there are": ("4 members, but its directory has 3", patched(
        patched(LIST, b"PK\5\6", 0, "entries", 4), b"PK\5\6", 0, "here", 4)),
    "another disk": ("several disks", patched(LIST, b"PK\5\6", 0, "disk", 1)),
    "a member on another disk": ("`b` is on disk 1", patched(LIST, b"PK\1\2", 1, "disk", 1)),
    "no entries in the directory": ("byte 0 of its directory", LIST.replace(b"PK\1\2", b"PK\1\0")),
    "an entry beyond the directory": ("ends within an entry", patched(LIST, b"PK\1\2", 2, "extra", 9)),
    "half an entry": ("not the beginning of an entry", LIST[:-22] + b"PK\1\2" + end(
        3, len(LIST) - 18 - DIRECTORY, DIRECTORY)),
    "an encrypted member": ("`b` is encrypted", both(LIST, 1, "flags", 1)),
    "a patch": ("`b` is compressed with method 0", both(LIST, 1, "flags", 1 << 5)),
    "a later version": ("`b` needs version 6.4", patched(LIST, b"PK\1\2", 1, "version", 64)),
    "bzip2": ("`a` is compressed with method 12", archive(zipfile.ZIP_BZIP2, files={"a": TEXT})),
    "a name twice": ("`a` occurs 2 times", LIST.replace(b"b", b"a")),
    "a name that is not UTF-8": ("is not valid UTF-8", both(
        LIST.replace(b"b", b"\xff"), 1, "flags", 1 << 11)),
    "a stored member of two sizes": ("in 3 bytes for 4", both(LIST, 1, "size", 4)),
    "a local header elsewhere": ("`a` .* no header is at its offset", LIST.replace(b"PK\3\4", b"PK\3\0")),
    "members that overlap": ("`a` would end at byte 37, but what follows it begins at 36", both(
        both(LIST, 0, "size", 6), 0, "stored", 6)),
    "a member that covers the directory": ("`c` would end", both(both(LIST, 2, "size", 99), 2, "stored", 99)),
    "two entries for one member": ("what follows it begins at 0|would end", patched(
        LIST, b"PK\1\2", 1, "header", 0)),
    "another name in the local header": ("`b` is not what .* calls it b'x'", LIST.replace(b"b678", b"x678")),
    "another method": ("`b` is not what .* method 8", patched(LIST, b"PK\3\4", 1, "method", 8)),
    "another flag": ("`b` is not what", patched(LIST, b"PK\3\4", 1, "flags", 1)),
    "sizes that come after, but differ": ("`b` is not what", patched(
        patched(LIST, b"PK\3\4", 1, "flags", 8), b"PK\3\4", 1, "size", 4)),
    "other bytes": ("`b` has the CRC-32", LIST.replace(b"678", b"679")),
    "other deflated bytes": ("cannot be inflated|has the CRC-32|should have", PACKED.replace(
        deflated(TEXT)[40:80], bytes(40))),
    "wide numbers that are missing": ("zip64 field lacks", WIDE_LIST.replace(
        b"\1\0\x10\0", b"\1\0\x08\0")),
    "a wide end elsewhere": ("zip64 record should be at byte .*says 7", LIST[:-22] + wide_end(
        3, len(LIST) - 22 - DIRECTORY, DIRECTORY, 7)),
    "a wide end on two disks": ("several disks", LIST[:-22] + wide_end(
        3, len(LIST) - 22 - DIRECTORY, DIRECTORY, len(LIST) - 22, disks=2)),
    "a bomb": ("`a` claims 4294967294 bytes, deflated to 4000", recompressed(bytes(4000), 2**32 - 2)),
    "more bytes than are said": ("`a` should have 1000000 bytes, but it inflates to more", recompressed(
        deflated(bytes(1_000_001)), 1_000_000)),
    "fewer bytes than are said": ("inflates to 999999 bytes only", recompressed(
        deflated(bytes(999_999)), 1_000_000)),
    "deflated data that breaks off": ("breaks off|bytes only", recompressed(
        deflated(NOISE)[:-1000], len(NOISE))),
    "bytes after the deflated data": ("ends before its stored bytes do", recompressed(
        deflated(bytes(1000)) + b"\0", 1000)),
    "many large extra fields": ("would end", many_wide_extras(3_000)),
}  # fmt: skip


@pytest.mark.parametrize(("says", "data"), REFUSED.values(), ids=REFUSED)
def test_archives_that_are_refused(says: str, data: bytes, tmp_path: Path) -> None:
    path = saved(tmp_path / "x.zip", data)
    with bounded(SLACK_BYTES + 25 * len(data)), pytest.raises(SourceError, match=says) as refusal:
        read_all(path)
    assert os.fspath(path) in str(refusal.value)
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("make", [archive, lambda: archive(DEFLATED, b"!"), with_wide_sizes])
def test_archives_that_are_cut(make: Callable[[], bytes], tmp_path: Path) -> None:
    data = make()
    for cut in [*range(0, len(data), len(data) // 70), *range(len(data) - 100, len(data))]:
        with pytest.raises(SourceError):
            read_all(saved(tmp_path / "x.zip", data[:cut]))


SMALL = {
    "stored": archive(STORED, b"c", {"a": b"12345", "b/ü": b"678", "d/": b""}),
    "deflated": archive(DEFLATED, b"", {"a": b"1" * 50, "b": bytes(range(256))}),
    "piped": through_a_pipe({"a": b"12", "b": b""}),
}


@examples(250)
@given(
    kind=st.sampled_from(sorted(SMALL)),
    damages=damages(10_000),
)
@example(kind="stored", damages=[(360, 1), (2402, 1)])
def test_whatever_is_read_from_damaged_archives_zipfile_reads_too(
    kind: str, damages: Damages, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Overwritten bytes: a refusal, or exactly what zipfile finds. Only that may be more lenient.

    An entry for a directory, which is empty, has nothing to read.
    """
    path = saved(tmp_path_factory.getbasetemp() / "damaged.zip", damaged(SMALL[kind], damages))
    try:
        found = read_all(path)
    except SourceError:
        return
    with zipfile.ZipFile(path) as file:
        members = [one for one in file.infolist() if one.file_size or not one.orig_filename.endswith("/")]
        assert found == {one.orig_filename: file.read(one) for one in members}


def first_of(path: Path) -> str | None:
    with opened(str(path)) as file:
        return first_name(file)


def test_a_file_without_a_whole_name_has_none(tmp_path: Path) -> None:
    header = LOCAL_FIELDS.pack(b"PK\3\4", *[0] * 8, 3, 0)
    for data, name in (
        (b"", None),
        (header, None),
        (header + b"ab", None),
        (header + b"abcd", "abc"),
        (b"PK\3\4" + b"\xff" * 40, None),
    ):
        (tmp_path / "x").write_bytes(data)
        assert first_of(tmp_path / "x") == name
    (tmp_path / "x").write_bytes(b"QK" + header[2:] + b"abc")
    assert first_of(tmp_path / "x") is None
