"""How often files are opened and read."""

from types import ModuleType
from typing import Any

import pytest

from ckpt_surgery.storage import reading


def calls_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a module will do with files, in that order: `open` and `read`."""
    calls: list[str] = []
    real_open, real_fill, real_read = reading.opened, reading._fill_from_file, reading.OpenFile.read

    def counted_open(path: str, *listed: Any) -> Any:
        calls.append("open")
        return real_open(path, *listed)

    def counted_fill(path: str, descriptor: int, offset: int, buffer: memoryview) -> None:
        calls.append("read")
        real_fill(path, descriptor, offset, buffer)

    def counted_read(self: Any, offset: int, length: int) -> bytes:
        calls.append("read")
        return real_read(self, offset, length)

    monkeypatch.setattr(module, "opened", counted_open)
    monkeypatch.setattr(reading, "_fill_from_file", counted_fill)
    monkeypatch.setattr(reading.OpenFile, "read", counted_read)
    return calls


def lengths_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all reads of open files from now on, but for those into buffers."""
    lengths: list[int] = []
    read = reading.OpenFile.read

    def noted(self: reading.OpenFile, offset: int, length: int) -> bytes:
        lengths.append(length)
        return read(self, offset, length)

    monkeypatch.setattr(reading.OpenFile, "read", noted)
    return lengths
