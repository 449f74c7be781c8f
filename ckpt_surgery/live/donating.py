"""Deletes the arrays of the target that are replaced, as soon as nothing reads them any more."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.engine.staging import outcomes
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.planner.plan import Plan, Step


class Donation:
    """The arrays of a target, each with the steps that have to be done before it goes.

    Safe to use from several threads.
    """

    def __init__(self, plan: Plan, target: LiveTree, sources: Mapping[str, Source], staying: Iterable[Any]):
        """`staying`: values that are part of the result, and so are never deleted."""
        kept = {id(value) for value in staying}
        self._arrays = {
            id(value): value for value in _arrays(target.values.values()) if id(value) not in kept
        }
        self._users: dict[int, set[str]] = {number: set() for number in self._arrays}
        for step in plan.steps:
            key = step.leaf.key.text
            for value in (target.values[key], *_read(step, sources)):
                if id(value) in self._users:
                    self._users[id(value)].add(key)
        self._used_by: dict[str, list[int]] = {}
        for number, keys in self._users.items():
            for key in keys:
                self._used_by.setdefault(key, []).append(number)
        self._lock = threading.Lock()

    def done(self, key: str) -> None:
        """The value of this key exists: delete the arrays that no other key waits for."""
        with self._lock:
            for number in self._used_by.get(key, ()):
                self._users[number].discard(key)
                if not self._users[number]:
                    self._arrays.pop(number).delete()


@contextmanager
def deletions_named(target: LiveTree) -> Iterator[None]:
    """Name the arrays of the target that were deleted inside in any error that is raised there."""
    there = _existing(target)
    try:
        yield
    except BaseException as error:
        remaining = set(_existing(target))
        if gone := [key for key in there if key not in remaining]:
            left = f"its other {len(remaining):,} arrays exist" if remaining else "none of its arrays is left"
            outcomes.add(
                error,
                f"already deleted of the target: {few_keys(gone)}; {left}",
                "Make the target again before you use it.",
            )
        raise


def has_arrays(target: LiveTree) -> bool:
    """True if a target has arrays that a donation can delete."""
    return bool(_existing(target))


def _existing(target: LiveTree) -> list[str]:
    """The keys of the arrays of a target that are not deleted."""
    return [key for key, value in target.values.items() if _arrays([value]) and not value.is_deleted()]


def _arrays(values: Iterable[Any]) -> list[Any]:
    import jax

    return [value for value in values if isinstance(value, jax.Array)]


def _read(step: Step, sources: Mapping[str, Source]) -> Sequence[Any]:
    """The values of trees in memory that a step reads."""
    found = [(sources[name], key) for name, key in step.sources]
    return [source.tree.values[key] for source, key in found if isinstance(source, TreeSource)]
