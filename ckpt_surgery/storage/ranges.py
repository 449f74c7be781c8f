"""Ranges of objects that lie near each other, put together: one request instead of several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckpt_surgery.storage.store import Range

GAP_BYTES = 512 << 10
"""Ranges with a smaller gap between them are read together: a request costs more than these bytes."""
JOINED_BYTES = 8 << 20
"""Ranges are put together up to this size."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges that are read in one request."""

    name: str
    start: int
    stop: int
    version: str | None
    members: tuple[int, ...]
    """Positions of the ranges among all that were asked for."""


def joined(ranges: Sequence[Range]) -> list[Joined]:
    """The requests that read these ranges: each range lies in exactly one of them."""
    return list(_joined(ranges))


def _joined(ranges: Sequence[Range]) -> Iterator[Joined]:
    order = sorted(
        range(len(ranges)), key=lambda i: (ranges[i].name, ranges[i].version or "", ranges[i].start)
    )
    current: Joined | None = None
    for position in order:
        range_ = ranges[position]
        if current is not None and _near(current, range_):
            stop = max(current.stop, range_.stop)
            current = Joined(current.name, current.start, stop, current.version, (*current.members, position))
            continue
        if current is not None:
            yield current
        current = Joined(range_.name, range_.start, range_.stop, range_.version, (position,))
    if current is not None:
        yield current


def _near(current: Joined, range_: Range) -> bool:
    return (
        (current.name, current.version) == (range_.name, range_.version)
        and range_.start - current.stop < GAP_BYTES
        and max(current.stop, range_.stop) - current.start <= JOINED_BYTES
    )
