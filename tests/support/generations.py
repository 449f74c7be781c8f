"""Tiny checkpoints that say which generation they are, and what a destination holds of them."""

import json
import os
from pathlib import Path

from ckpt_surgery.engine.staging import local, owners

OLD, NEW = "old", "new"
LINES = 3
"""How often a checkpoint in one file names its generation."""


def fill(directory: Path, generation: str) -> None:
    """Write a tiny checkpoint whose two files name the generation, so that a mix of two is noticed."""
    (directory / "d").mkdir()
    (directory / "d" / "data").write_text(generation)
    (directory / "_METADATA").write_text(generation)


def fill_file(file: Path, generation: str) -> None:
    """Write a tiny checkpoint in one file, which names the generation several times."""
    file.write_text(f"{generation}\n" * LINES)


def found(destination: Path) -> str | None:
    """The generation at the destination, or None where nothing is. Fails if the checkpoint is not whole."""
    if not os.path.lexists(destination):
        return None
    if destination.is_file():
        lines = destination.read_text().splitlines()
        assert lines == [lines[0]] * LINES
        return lines[0]
    files = sorted(p.relative_to(destination).as_posix() for p in destination.rglob("*"))
    assert files == ["_METADATA", "d", "d/data"]
    (generation,) = {(destination / name).read_text() for name in ("_METADATA", "d/data")}
    return generation


def put(
    destination: Path, generation: str, overwrite: bool = False, one_file: bool = False
) -> tuple[str, ...]:
    with local.staged(destination, one_file) as staging:
        (fill_file if one_file else fill)(staging.product, generation)
        local.publish(staging, overwrite)
    return staging.notices


def lock_of(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.ckpt-surgery-lock")


def write_lock(destination: Path, silent: float = 0, **changes: object) -> None:
    """Write a lock as this process does, but with some fields changed.

    `silent`: seconds since the last sign of life.
    """
    owner = owners.to_json(owners.this_process("0" * 16))
    lock_of(destination).write_text(json.dumps(owner | changes))
    age(lock_of(destination), silent)


def age(file: Path, seconds: float) -> None:
    """Set the time of a file back."""
    then = file.stat().st_mtime - seconds
    os.utime(file, (then, then))
