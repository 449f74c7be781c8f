"""How often files are opened and read."""

from types import ModuleType
from typing import Any

import pytest

from ckpt_surgery.storage import reading


def calls_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a module will do with files, in that order: `open` and `read`."""
    calls: list[str] = []
    real_open, real_read = reading.opened, reading.OpenFile.read_into

    def counted_open(path: str) -> Any:
        calls.append("open")
        return real_open(path)

    def counted_read(self: Any, offset: int, buffer: memoryview) -> None:
        calls.append("read")
        real_read(self, offset, buffer)

    monkeypatch.setattr(module, "opened", counted_open)
    monkeypatch.setattr(reading.OpenFile, "read_into", counted_read)
    return calls
