"""Tiny checkpoints that say which generation they are, and what a destination holds of them."""

import json
import os
from pathlib import Path

from ckpt_surgery.engine.staging import local, locks

OLD, NEW = "old", "new"
LINES = 3
"""A checkpoint in one file names its generation so often."""


def fill(directory: Path, generation: str) -> None:
    """A tiny checkpoint whose two files both name the generation: a mix of two would show."""
    (directory / "d").mkdir()
    (directory / "d" / "data").write_text(generation)
    (directory / "_METADATA").write_text(generation)


def fill_file(file: Path, generation: str) -> None:
    """A tiny checkpoint in one file, which names the generation several times."""
    file.write_text(f"{generation}\n" * LINES)


def found(destination: Path) -> str | None:
    """The generation at the destination, None where nothing is there. Fails on anything but a whole one."""
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


def write_lock(destination: Path, **changes: object) -> None:
    """A lock as this process would write it, with some fields changed."""
    owner = {name: getattr(locks._this_process(), name) for name in locks._Owner.__dataclass_fields__}
    lock_of(destination).write_text(json.dumps(owner | changes))
