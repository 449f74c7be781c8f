"""Defaults for the memory and the threads of a run."""

import ctypes
import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
"""File in which Linux reports how much memory is available."""


def default_memory() -> int:
    """Default budget in bytes: the smaller of 2 GiB and a quarter of the available memory."""
    return min(2 << 30, available_memory() // 4)


def default_workers() -> int:
    """Default threads: one per usable core, and one more to overlap reading and writing."""
    return usable_cores() + 1


def release_memory() -> None:
    """Return freed memory to the system, if the allocator can (glibc's malloc_trim(3))."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def available_memory() -> int:
    """Bytes available without swapping; half of all memory on systems that do not report it."""
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return total_memory() // 2
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def total_memory() -> int:
    """Bytes of memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def usable_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
