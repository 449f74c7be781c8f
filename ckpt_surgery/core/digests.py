"""Digests of arrays: CRC-32C checksums of regions, by which a checkpoint is verified."""

from collections.abc import Mapping

import google_crc32c
import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.frozen import frozen

PIECE = 1 << 20
"""Bytes of a non-contiguous array that are copied at a time."""


@frozen()
class Digests:
    """The CRC-32C checksums of one output, region by region.

    CRC-32C is that of RFC 3720, appendix B.4 (polynomial 0x1EDC6F41).
    """

    grid: Shape
    """Shape of the regions: they are the cells of a regular grid."""
    of_values: bool
    """Whether a checksum is of the decoded elements in C order, little endian. Otherwise it is of the stored
    bytes of a chunk."""
    crcs: Mapping[Shape, int]
    """The checksum of each region by its index in the grid."""


def bytes_crc(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """CRC-32C of bytes; `crc` is that of the bytes before them."""
    return int(google_crc32c.extend(crc, np.frombuffer(data, np.uint8)))


def values_crc(block: np.ndarray, crc: int = 0) -> int:
    """CRC-32C of the elements in C order, as they are in memory; `crc` is that of elements before them.

    A non-contiguous array is copied in pieces of at most PIECE bytes, or single rows.
    """
    if not block.size:
        return crc
    if block.flags.c_contiguous:
        return int(google_crc32c.extend(crc, block.reshape(-1).view(np.uint8)))
    row = block.nbytes // len(block)
    together = max(1, PIECE // row)
    for i in range(0, len(block), together):
        part = block[i] if row > PIECE else np.ascontiguousarray(block[i : i + together])
        crc = values_crc(part, crc)
    return crc
