"""Writing `.npz`: one archive of `.npy` files, stored as they are, at places that are known beforehand.

Source of the format: `zip_members`, `npy_header`, and what NumPy 2.4's `savez` writes and `load` reads.
"""

import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.limits import not_held
from ckpt_surgery.formats.shared.npy import DESCRIPTIONS, MOST_STRING_BYTES, npy_header, npy_string
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.zip_layout import (
    CENTRAL,
    CENTRAL_FIELDS,
    END,
    END64,
    END64_FIELDS,
    END_FIELDS,
    LOCAL,
    LOCAL_FIELDS,
    LOCATOR64,
    LOCATOR64_FIELDS,
    MOST_COMMENT_BYTES,
    MOST_NAME_BYTES,
    STORE,
    UTF_8,
    WIDE,
    ZIP64_EXTRA,
)
from ckpt_surgery.storage.reading import OpenFile, opened
from ckpt_surgery.storage.regions import Place, Places, in_one_piece, storage_errors

DEFAULT_NAME = "checkpoint.npz"
VERSION, VERSION64 = 20, 45
"""Of the zip format that is needed to read a member: 2.0, and 4.5 for zip64."""
DATE = 33
"""1 January 1980, the earliest there is: equal arrays make equal files."""
MODE = 0o600 << 16
"""A file that its owner may read and write, as zipfile says."""
MOST_ENTRIES = 0xFFFF
"""From so many members on their number is in a zip64 record."""
WIDE_FROM = WIDE
"""Numbers from this one on are in zip64 fields."""
CRC_AT = 14
"""Offset of the CRC-32 in a local header."""
PIECE = 1 << 18
"""Bytes that are read back in one go."""


# --- what the format cannot hold --------------------------------------------------------------------------


def unsupported(leaves: Sequence[Leaf]) -> list[str]:
    """Why an `.npz` file cannot hold these leaves, one sentence for each thing; empty: it can."""
    return [sentence for leaf in leaves for sentence in _of_leaf(leaf)] + [*_of_all(leaves)]


_NO_ARRAYS = {
    LeafKind.PRNG_KEY: "a PRNG key, whose type would be lost",
}


def _of_leaf(leaf: Leaf) -> Iterator[str]:
    name, text = f"`{shown(leaf.key.text)}`", leaf.key.text
    if leaf.kind in _NO_ARRAYS:
        yield f"{name} is {_NO_ARRAYS[leaf.kind]}; an .npz file holds arrays and strings only; drop it."
    elif leaf.spec is not None and leaf.spec.dtype not in DESCRIPTIONS:
        yield f"{name} {not_held(leaf.spec.dtype, 'NumPy cannot store')}"
    if leaf.string is not None and not _is_storable(leaf.string):
        yield f"{name} is too long a string, or one that ends in NUL or is not valid Unicode; drop it."
    if not _is_unicode(text):
        yield f"{name} is not valid Unicode, so it cannot be stored as UTF-8; rename it."
    elif len(_raw_name(text)) > MOST_NAME_BYTES:
        yield f"`{shown(text[:200])}…` has {len(_raw_name(text))} bytes, too many for a name; rename it."
    if "\0" in text:
        yield f"{name} has a NUL in it, where readers of zip archives cut names off; rename it."


def _of_all(leaves: Sequence[Leaf]) -> Iterator[str]:
    counts = Counter(leaf.key.text for leaf in leaves)
    for text, count in counts.items():
        if count > 1:
            yield f"{count} leaves would have the name `{shown(text)}`; rename all but one."
        if text.endswith(NPY_SUFFIX) and text.removesuffix(NPY_SUFFIX) in counts:
            other = shown(text.removesuffix(NPY_SUFFIX))
            yield f"`{shown(text)}` could not be told from `{other}` by np.load; rename one."


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_storable(text: str) -> bool:
    return 4 * len(text) <= MOST_STRING_BYTES and not text.endswith("\0") and _is_unicode(text)


def _raw_name(text: str) -> bytes:
    return (text + NPY_SUFFIX).encode()


# --- which array where ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A member to be written."""

    text: str
    """The leaf's key."""
    header: int
    """Offset of the local header."""
    begin: bytes
    """What the `.npy` file begins with: all of it but the elements."""
    spec: ArraySpec | None
    """None where there is nothing but `begin`."""

    @property
    def size(self) -> int:
        return len(self.begin) + (0 if self.spec is None else self.spec.nbytes)

    @property
    def raw_name(self) -> bytes:
        return _raw_name(self.text)

    @property
    def start(self) -> int:
        """Offset of the `.npy` file."""
        return self.header + LOCAL_FIELDS.size + len(self.raw_name) + len(self.local_extra)

    @property
    def stop(self) -> int:
        return self.start + self.size

    @property
    def local_extra(self) -> bytes:
        return _zip64(self.size, self.size) if self.size >= WIDE_FROM else b""

    def local_header(self, crc: int) -> bytes:
        size, extra = _narrow(self.size), self.local_extra
        about = (_version(extra), _flags(self.raw_name), STORE, 0, DATE, crc, size, size)
        lengths = (len(self.raw_name), len(extra))
        return LOCAL_FIELDS.pack(LOCAL, *about, *lengths) + self.raw_name + extra

    def entry(self, crc: int) -> bytes:
        """In the directory."""
        wide = [n for n in (self.size, self.size, self.header) if n >= WIDE_FROM]
        extra, size = _zip64(*wide) if wide else b"", _narrow(self.size)
        about = (_version(extra), _version(extra), _flags(self.raw_name), STORE, 0, DATE, crc, size, size)
        rest = (len(self.raw_name), len(extra), 0, 0, 0, MODE, _narrow(self.header))
        return CENTRAL_FIELDS.pack(CENTRAL, *about, *rest) + self.raw_name + extra


def _narrow(number: int) -> int:
    """What stands where a number is that may be in a zip64 field instead."""
    return number if number < WIDE_FROM else WIDE


def _zip64(*numbers: int) -> bytes:
    """The extra field with the numbers that need more than 32 bits."""
    data = b"".join(number.to_bytes(8, "little") for number in numbers)
    return ZIP64_EXTRA.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data


def _version(extra: bytes) -> int:
    return VERSION64 if extra else VERSION


def _flags(raw_name: bytes) -> int:
    return 0 if raw_name.isascii() else UTF_8


def place_all(leaves: Sequence[Leaf]) -> list[Placed]:
    """One member after another, in the order of the leaves."""
    placed: list[Placed] = []
    for leaf in leaves:
        header = placed[-1].stop if placed else 0
        if leaf.string is not None:
            placed.append(Placed(leaf.key.text, header, npy_string(leaf.string), None))
        else:
            assert leaf.spec is not None
            placed.append(Placed(leaf.key.text, header, npy_header(leaf.spec), leaf.spec))
    return placed


def archive_end(placed: Sequence[Placed], crcs: Mapping[str, int], comment: bytes) -> bytes:
    """The directory, and the records after it."""
    directory = b"".join(member.entry(crcs[member.text]) for member in placed)
    count, length = len(placed), len(directory)
    offset = placed[-1].stop if placed else 0
    wide = b""
    if count >= MOST_ENTRIES or offset >= WIDE_FROM or length >= WIDE_FROM:
        numbers = (0, 0, count, count, length, offset)
        wide = END64_FIELDS.pack(END64, END64_FIELDS.size - 12, VERSION64, VERSION64, *numbers)
        wide += LOCATOR64_FIELDS.pack(LOCATOR64, 0, offset + length, 1)
        count, length, offset = min(count, MOST_ENTRIES), _narrow(length), _narrow(offset)
    end = END_FIELDS.pack(END, 0, 0, count, count, length, offset, len(comment))
    return directory + wide + end + comment


# --- the sink ---------------------------------------------------------------------------------------------


class NpzSink:
    """Writes one file into a directory; it is no archive before `finish`. Thread-safe."""

    def __init__(self, directory: Path, comment: bytes, file_name: str):
        self._path = directory / file_name
        self._comment = comment
        self._placed: Sequence[Placed] = ()
        self._places = Places({})

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why an `.npz` file cannot hold these leaves, one sentence each; empty: it can."""
        return unsupported(leaves)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether the stored bytes, one chunk after another, are the array's."""
        return leaf.spec is not None and in_one_piece(manifest)

    def adopt(self, output: Output) -> None:
        """Copy stored bytes, inside the kernel where it can. Raises StorageError, SourceError."""
        assert output.stored is not None
        self._places.adopt(output.leaf.key.text, output.stored.chunks)

    def create(self, outputs: Sequence[Output]) -> None:
        """Make the file in its full size, with all headers but no directory. Raises StorageError."""
        self._placed = place_all([output.leaf for output in outputs])
        end = archive_end(self._placed, dict.fromkeys((p.text for p in self._placed), 0), self._comment)
        with storage_errors(self._path), open(self._path, "xb") as file:
            for member in self._placed:
                file.seek(member.header)
                file.write(member.local_header(0) + member.begin)
            file.truncate((self._placed[-1].stop if self._placed else 0) + len(end))
        self._places = Places(
            {
                member.text: Place(self._path, member.start + len(member.begin), member.spec)
                for member in self._placed
                if member.spec is not None
            }
        )

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region; regions may be of any form. Raises StorageError."""
        self._places.write(output.leaf.key.text, region, block)

    def finish(self) -> None:
        """Read everything back for its CRC-32, and make the file an archive. Raises StorageError."""
        with opened(os.fspath(self._path)) as written:
            crcs = {member.text: _crc(written, member) for member in self._placed}
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for member in self._placed:
                file.seek(member.header + CRC_AT)
                file.write(crcs[member.text].to_bytes(4, "little"))
            file.seek(self._placed[-1].stop if self._placed else 0)
            file.write(archive_end(self._placed, crcs, self._comment))


def _crc(file: OpenFile, member: Placed) -> int:
    """Of a whole `.npy` file, header included."""
    crc, buffer = 0, memoryview(bytearray(min(PIECE, member.size)))
    for at in range(member.start, member.stop, PIECE):
        part = buffer[: member.stop - at]
        file.read_into(at, part)
        crc = zlib.crc32(part, crc)
    return crc


def open_npz_sink(directory: Path, options: SinkOptions) -> NpzSink:
    """A sink on an empty directory: one file, `checkpoint.npz` unless `options.file_name` says otherwise.

    The metadata are the archive's comment, as JSON. Raises UsageError for options that make no sense.
    """
    check_no_choice("An .npz file has", options.step, options.item, "dst_")
    return NpzSink(directory, _comment(options), options.file_name or DEFAULT_NAME)


def _comment(options: SinkOptions) -> bytes:
    """Escaped, so that nothing in it looks like the end of an archive."""
    if not options.metadata:
        return b""
    try:
        comment = json.dumps(dict(options.metadata), separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata cannot be stored as JSON: {error}") from error
    if len(comment) > MOST_COMMENT_BYTES:
        raise UsageError(
            f"The custom metadata take {len(comment)} bytes; an .npz file holds {MOST_COMMENT_BYTES}",
            hint="Choose another format.",
        )
    return comment
