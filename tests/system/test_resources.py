"""Default memory and threads, with and without what only Linux tells."""

import os
from pathlib import Path

import pytest

from ckpt_surgery.system import resources


@pytest.mark.parametrize(("available", "memory"), [(4096, 1 << 20), (999_999_999, 2 << 30)])
def test_a_quarter_of_the_available_memory_and_two_gib_at_most(
    available: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal:  9000000 kB\nMemAvailable:    {available} kB\n")
    monkeypatch.setattr(resources, "_MEMINFO", tmp_path / "meminfo")
    assert resources.default_memory() == memory


def test_without_meminfo_half_of_all_memory_counts_as_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1 << 12, "SC_PAGE_SIZE": 1 << 14}.__getitem__)
    assert resources.default_memory() == (1 << 26) // 8


def test_one_thread_more_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5}, raising=False)
    assert resources.default_workers() == 4
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert resources.default_workers() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert resources.default_workers() == 2
