"""Settings that must be in place before jax is imported, and real checkpoints that tests share."""

import os

# Eight devices on the CPU, so that arrays can be sharded.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import checkpoints


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`checkpoint(layout)`: a checkpoint that stock Orbax wrote in that layout, built once; read-only."""
    built: dict[str, Path] = {}

    def of(layout: str) -> Path:
        if layout not in built:
            built[layout] = tmp_path_factory.mktemp(layout) / "checkpoint"
            checkpoints.LAYOUTS[layout](built[layout])
        return built[layout]

    return of
