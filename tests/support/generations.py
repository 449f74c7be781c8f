"""Tiny checkpoints that say which generation they are, and what a destination holds of them."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from ckpt_surgery.engine.staging import life, owners
from ckpt_surgery.engine.staging.checks import state_of
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.failures import storage_errors

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


def staged(
    destination: Path,
    one_file: bool = False,
    identity: Mapping[str, str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> AbstractContextManager[DiskStage]:
    """A run's stage. With `overwrite`, what is there when this is called may be replaced."""
    with storage_errors(destination):
        replaces = replaced_at(destination, overwrite)
    return life.staged(DiskStage(destination, one_file, identity or {}, replaces), resume)


def replaced_at(place: Path | str, overwrite: bool) -> Replacement | None:
    """What a run replaces, as it is now."""
    return Replacement(str(place), state_of(place) or "") if overwrite else None


def put(
    destination: Path, generation: str, overwrite: bool = False, one_file: bool = False
) -> tuple[str, ...]:
    with staged(destination, one_file, overwrite=overwrite) as staging:
        (fill_file if one_file else fill)(staging.output, generation)
        staging.publish()
    return staging.notices


def lock_of(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.ckpt-surgery-lock")


def write_lock(destination: Path, silent: float = 0, **changes: object) -> None:
    """Write a lock as this process does, but with some fields changed.

    `silent`: seconds since the last sign of life.
    """
    owner = replace(owners.this_process("0" * 16), **changes)  # type: ignore[arg-type]
    lock_of(destination).write_bytes(owners.note_bytes(owners.Note(owner)))
    age(lock_of(destination), silent)


def age(file: Path, seconds: float) -> None:
    """Set the time of a file back."""
    then = file.stat().st_mtime - seconds
    os.utime(file, (then, then))
