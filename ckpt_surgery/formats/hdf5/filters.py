"""Decoding the filtered chunks of HDF5 datasets: deflate, LZF, shuffle, Fletcher-32.

This is not left to libhdf5: for a stream that ends too early it returns whatever lies in its memory behind
the end. Sources: the HDF5 1.14 specification, section IV.A.2.l, and its checksum `H5_checksum_fletcher32`;
the streams of LibLZF 3.6, which h5py's filter 32000 holds.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.failures import DAMAGED

DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
"""Numbers of the filters that are decoded here."""
NAMES = {DEFLATE: "gzip", SHUFFLE: "shuffle", FLETCHER32: "fletcher32", LZF: "lzf"}
COMPRESSORS = (DEFLATE, LZF)
CHECKSUM_BYTES = 4
MOST_GAIN = 1032
"""Largest number of bytes that one compressed byte can become: by deflate, 258 for every two bits."""
_MODULUS = 0xFFFF


@dataclass(frozen=True)
class Filter:
    """One step of how chunks are encoded."""

    number: int
    """The filter's registered number."""
    element_bytes: int = 1
    """Of shuffle: size of the elements whose bytes are interleaved."""

    @property
    def name(self) -> str:
        return NAMES[self.number]


def short_name(filters: Sequence[Filter]) -> str:
    """What users call an encoding: the compressor, or else the last filter; `raw` without any."""
    names = [f.name for f in filters if f.number in COMPRESSORS] or [f.name for f in filters] or ["raw"]
    return names[-1]


def decoded(data: bytes, filters: Sequence[Filter], mask: int, nbytes: int) -> bytes:
    """The `nbytes` bytes of a chunk. `mask`: the filters that were left out for it, one bit for each.

    Raises SourceError where the stored bytes decode to another number of bytes or have another checksum.
    """
    used = [f for i, f in enumerate(filters) if not mask >> i & 1]
    for i, step in reversed(list(enumerate(used))):
        before = nbytes + CHECKSUM_BYTES * sum(f.number == FLETCHER32 for f in used[:i])
        match step.number:
            case n if n == DEFLATE:
                data = _inflated(data, before)
            case n if n == LZF:
                data = _from_lzf(data, before)
            case n if n == SHUFFLE:
                data = _unshuffled(data, step.element_bytes)
            case _:
                data = _checked(data)
    if len(data) != nbytes:
        raise SourceError(f"a chunk decodes to {len(data)} bytes instead of {nbytes}", hint=DAMAGED)
    return data


def _inflated(data: bytes, nbytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, nbytes + 1)
    except zlib.error as error:
        raise SourceError(f"a chunk cannot be inflated: {error}", hint=DAMAGED) from error
    if len(found) != nbytes or not stream.eof:
        more = "more than " if len(found) > nbytes else ""
        raise SourceError(
            f"a chunk inflates to {more}{min(len(found), nbytes)} bytes, and its stream "
            f"{'ends' if stream.eof else 'does not end'} there; {nbytes} belong there",
            hint=DAMAGED,
        )
    return found


def _from_lzf(data: bytes, nbytes: int) -> bytes:
    """LZF: runs of up to 32 bytes as they are, and copies of up to 264 bytes from at most 8 KiB before."""
    made, at, end = bytearray(), 0, len(data)
    while at < end:
        control = data[at]
        if control < 32:
            made += data[at + 1 : at + 2 + control]
            at += 2 + control
        else:
            length, at = (control >> 5) + 2, at + 1
            if length == 9 and at < end:
                length, at = length + data[at], at + 1
            if at >= end:
                raise _lzf_flaw("ends within a copy")
            start = len(made) - ((control & 31) << 8 | data[at]) - 1
            at += 1
            if start < 0:
                raise _lzf_flaw("copies bytes from before its beginning")
            _copy(made, start, length)
        if at > end or len(made) > nbytes:
            raise _lzf_flaw("is cut short" if at > end else f"has more than {nbytes} bytes")
    return bytes(made)


def _copy(made: bytearray, start: int, length: int) -> None:
    """Append `length` bytes from `start` on, which can be among those that are appended."""
    piece = made[start : start + length]
    made += (piece * -(-length // len(piece)))[:length]


def _lzf_flaw(what: str) -> SourceError:
    return SourceError(f"a chunk's LZF stream {what}", hint=DAMAGED)


def _unshuffled(data: bytes, element_bytes: int) -> bytes:
    """The first bytes of all elements come first, then all second ones; what is no whole element is last."""
    count = len(data) // element_bytes
    whole = np.frombuffer(data, np.uint8, count * element_bytes).reshape(element_bytes, count)
    return whole.T.tobytes() + data[count * element_bytes :]


def _checked(data: bytes) -> bytes:
    """The bytes before their checksum. Raises SourceError where it is another."""
    body, stored = data[:-CHECKSUM_BYTES], int.from_bytes(data[-CHECKSUM_BYTES:], "little")
    if len(data) < CHECKSUM_BYTES or fletcher32(body) != stored:
        raise SourceError("a chunk's bytes do not have the checksum that is stored with them", hint=DAMAGED)
    return body


def fletcher32(data: bytes) -> int:
    """HDF5's checksum: of big-endian 16-bit words, the sum and the sum of all partial sums, modulo 65535."""
    words = np.frombuffer(data + bytes(len(data) % 2), ">u2").astype(np.uint64)
    weights = np.arange(len(words), 0, -1, dtype=np.uint64) % _MODULUS
    low, high = int(words.sum()), int(((words * weights) % _MODULUS).sum())
    any_bit = bool(words.any())
    return _folded(high, any_bit) << 16 | _folded(low, any_bit)


def _folded(total: int, any_bit: bool) -> int:
    """A sum as the library has it, which adds carries back: 65535 stands for 0 where any bit was set."""
    rest = total % _MODULUS
    return _MODULUS if any_bit and rest == 0 else rest
