"""The bounds that hostile files are held to are bounds: they stop what goes beyond them."""

import contextlib
import os
from pathlib import Path

import pytest

from tests.formats.bounds import bounded


def test_memory() -> None:
    with bounded(2**20):
        assert bytes(2**19)
    with pytest.raises(AssertionError, match="bytes were allocated, 1048576 are allowed"), bounded(2**20):
        assert bytes(2**21)


def test_calls_without_end() -> None:
    """Also in code that takes every error for a refusal."""
    with pytest.raises(AssertionError, match="more than 100 calls"), bounded(2**20, 100):
        for i in range(1000):
            with contextlib.suppress(AssertionError):
                abs(i)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with bounded(2**20):
        os.close(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    with pytest.raises(AssertionError, match="waits for somebody"), bounded(2**20):
        (tmp_path / "pipe").read_bytes()
