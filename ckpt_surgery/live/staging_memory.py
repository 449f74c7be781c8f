"""Host memory in which shards are put together before they are copied to their devices.

JAX's client for CPU devices takes over NumPy memory that begins at a multiple of 64 bytes instead of copying
it. Such an array cannot be donated: its memory belongs to NumPy. So staged arrays never begin at such an
address, and are always copied.
"""

import mmap
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Shape

MAPPED = 1 << 20
"""Arrays of at least this many bytes are mapped by themselves: freeing them returns memory to the system. The
program's allocator may keep freed memory."""
_LARGEST_REUSED = (32 << 20) - (64 << 10)
"""Bytes of the largest blocks that glibc keeps for reuse (its DEFAULT_MMAP_THRESHOLD_MAX), less some for its
own data."""
_ALIGNED = 64
"""Alignment, in bytes, of memory that JAX takes over without a copy."""


def let_memory_be_reused() -> None:
    """Let the allocator keep freed blocks of some MiB for the next ones instead of giving each to the system.

    glibc's malloc(3) does so with blocks up to the largest one that it has seen freed, if that had at most
    32 MiB. So no setting of the program is changed, and `release_memory` gives all of it back. Getting
    blocks from the system, which clears them page by page, takes a tenth of the time of a restore.
    """
    np.empty(_LARGEST_REUSED, np.uint8)


def staging_array(shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
    """An array in C order that is not initialized, and that JAX copies."""
    count = int(np.prod(shape, dtype=np.int64))
    nbytes = count * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    offset = dtype.alignment
    raw = _mapped(nbytes + offset) if nbytes >= MAPPED else np.empty(nbytes + _ALIGNED + offset, np.uint8)
    start = -raw.ctypes.data % _ALIGNED + offset
    array: np.ndarray = raw[start : start + nbytes].view(dtype).reshape(shape)
    return array


def _mapped(nbytes: int) -> np.ndarray:
    """Bytes that are unmapped when the last array in them is freed; they begin at a page."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux: a fifth of the time to get the memory
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
