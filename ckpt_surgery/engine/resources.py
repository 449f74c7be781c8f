"""How much memory and how many threads a run takes where nobody says."""

import os

DEFAULT_MEMORY = 2 << 30


def default_memory() -> int:
    """Bytes: the smaller of 2 GiB and a quarter of what is available."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min(DEFAULT_MEMORY, available // 4)


def default_workers() -> int:
    """One thread per core that this process may use, and one more to overlap reading and writing."""
    return len(os.sched_getaffinity(0)) + 1
