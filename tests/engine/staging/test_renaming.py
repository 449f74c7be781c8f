"""Renames that refuse or exchange, with and without the kernel's own."""

import errno
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import (
    DestinationError,
)
from ckpt_surgery.engine.staging import renaming
from tests.support.generations import NEW, found, put


def unsupported(source: Path, target: Path, flags: int) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def test_plain_rename_refuses_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renaming, "_renameat2", unsupported)
    (tmp_path / "out").mkdir()
    with pytest.raises(DestinationError, match="came into being"):
        put(tmp_path / "out", NEW)
    put(tmp_path / "out", NEW, overwrite=True)
    assert found(tmp_path / "out") == NEW
