"""GGUF files that are not what they say."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.formats.gguf.files import array, entry, made, numbers_of, tensor, text
from tests.support.conformance import Lie, file_lie

HUGE = 2**63


def lie(reason: str, says: str, *tensors: bytes, **parts: Any) -> Lie:
    return Lie(reason, lambda directory: made(directory / "x.gguf", tensors or (tensor(),), **parts), says)


def about(reason: str, says: str, *entries: bytes, **parts: Any) -> Lie:
    return lie(reason, says, entries=entries, **parts)


def nested(depth: int) -> bytes:
    """Arrays of one array each."""
    return array(9, 1) * depth + array(4, 1, bytes(4))


HEADER_LIES = (
    file_lie("x.gguf", "no byte", "does not begin as GGUF files do", b""),
    file_lie("x.gguf", "another magic", "does not begin as GGUF files do", b"GGML" + bytes(60)),
    file_lie("x.gguf", "nothing but the magic", "claims 4 bytes at byte 4", b"GGUF"),
    lie("version 1", "version 1 of GGUF; versions 2 and 3 are read", version=1),
    lie("big endian", "big endian, in version 3 of GGUF", version=3 << 24),
    lie("more tensors than bytes", f"claims {HUGE} tensors", counts=(HUGE, None)),
    lie("more entries than bytes", f"claims {HUGE} entries of metadata", counts=(None, HUGE)),
    lie("one tensor too many", "claims 1 tensors|is there twice|claims .* bytes", counts=(2, None), data=b""),
    lie("a million tensors", "1000000 tensors; 65536 is", counts=(10**6, 0), data=bytes(24 * 10**6)),
)

TEXTS = array(8, 300, text("x") * 299 + struct.pack("<Q", HUGE))
METADATA_LIES = (
    about("a name beyond the file", f"claims {HUGE} bytes of text", struct.pack("<Q", HUGE)),
    about("a name too long", "a name of 70000 bytes; 65535 is the limit", entry("x" * 70_000, 7, b"\1")),
    about("a name that is not UTF-8", "is not UTF-8", entry(b"\xff", 7, b"\1")),
    about("an unknown type", "`a` has a value of the unknown type 13", entry("a", 13, bytes(8))),
    about("an array of an unknown type", "unknown type 77", entry("a", 9, array(77, 1000))),
    about("more numbers than bytes", f"claims {HUGE} numbers", entry("a", 9, array(10, HUGE))),
    about("more texts than bytes", f"claims {HUGE} texts", entry("a", 9, array(8, HUGE))),
    about("a text of many beyond the file", "claims .* bytes of texts", entry("a", 9, TEXTS)),
    about("more arrays than bytes", f"claims {HUGE} arrays", entry("a", 9, array(9, HUGE))),
    about("arrays in arrays in arrays", "more than 4 deep", entry("a", 9, nested(5))),
    about("a truth that is neither 0 nor 1", "boolean with the byte 2", entry("a", 7, b"\2")),
    about("a truth in an array", "boolean with the byte 9", entry("a", 9, array(7, 2, b"\1\x09"))),
    about("an entry twice", "has `a` twice", entry("a", 7, b"\1"), entry("a", 7, b"\0")),
    about("no alignment", "alignment is 0, no power of two", *numbers_of(general__alignment=0)),
    about("an alignment that is a text", "no power of two", entry("general.alignment", 8, text("32"))),
    about("an alignment beyond the file", "ends at byte 21474836", *numbers_of(general__alignment=2**31)),
    about("a part of a split model", "it is file 2 of 3", *numbers_of(split__no=1, split__count=3)),
    about("a number of parts that is a text", "count is '3', no number", entry("split.count", 8, text("3"))),
    about("a tensor too few", "has 2 tensors, and they are 1", *numbers_of(split__tensors__count=2)),
)


def lengths(*lengths: int, type: int = 0) -> bytes:
    return tensor("a", lengths, type)


TENSOR_LIES = (
    lie("a name that is not UTF-8", "is not UTF-8", tensor(b"\xff")),
    lie("a name beyond the file", "bytes of text", struct.pack("<Q", 2**40)),
    lie("five axes", "`a` has 5 axes; 4 is the limit", lengths(1, 1, 1, 1, 1)),
    lie("a type that there never was", "unknown type 99", lengths(4, type=99)),
    lie("lengths whose product overflows", "beyond all memory", lengths(2**32, 2**32, 2)),
    lie("a length beyond the file", "ends at byte 4398046511", lengths(2**40)),
    lie("a type of wider elements", r"ends at byte 1\d\d, and the file has", lengths(12, type=28)),
    lie("a part of a block", r"Q8_0 of the shape \[33\]: its last axis is not a", lengths(33, type=8)),
    lie("an offset that is not aligned", "begins at byte 4 .* no multiple of 32", tensor(offset=4)),
    lie("an offset beyond the file", "ends at byte", tensor(offset=2**63)),
    lie("one place for two tensors", "`t1` shares bytes with `t0`", tensor("t0"), tensor("t1")),
    lie("one name twice", "`a` is there twice", tensor(), tensor(offset=32)),
)

LIES = (*HEADER_LIES, *METADATA_LIES, *TENSOR_LIES)


def parts(reason: str, says: str, first: Sequence[bytes], second: Sequence[bytes], **numbers: int) -> Lie:
    """A model in two files with these tensors."""

    def make(directory: Path) -> Path:
        for i, tensors in enumerate((first, second)):
            about = numbers_of(split__no=i, split__count=2, **numbers)
            made(directory / f"m-0000{i + 1}-of-00002.gguf", tensors, about)
        return directory

    return Lie(reason, make, says)


THREE = {"split__tensors__count": 3}
SPLIT_LIES = (
    parts("a name in two files", r"`a` is in .*00001-of-00002\.gguf and in ", [tensor()], [tensor()]),
    parts("a tensor is missing", "3 tensors, and they are 2", [tensor("a")], [tensor("b")], **THREE),
    parts("a file beyond its end", r"00002-of-00002\.gguf: `b` ends at", [tensor()], [tensor("b", (99,))]),
)
