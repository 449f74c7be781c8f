"""Measurements as tables in Markdown and as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from benchmarks.machine import Setting
from benchmarks.measure import Measured

MIB = 2**20


@dataclass(frozen=True)
class Limit:
    """Limits that a line should stay within; None: no limit."""

    seconds: float | None = None
    ratio: float | None = None
    """Its time divided by the peer's."""
    peak: int | None = None
    """Bytes."""


@dataclass(frozen=True)
class Line:
    """One command on one size of input."""

    work: str
    who: str
    measured: Measured | None
    """None: the kernel killed the command because memory ran out."""
    size: float = 0
    unit: str = ""
    """Unit of `size`, GB or leaves; empty where nothing grows."""
    is_peer: bool = False
    headline: bool = True
    """Whether the line is also in the table of one size."""
    start_up: float = 0.0
    """Seconds that do not count in the ratio."""
    limit: Limit = Limit()
    note: str = ""

    def within(self, other: Limit, note: str = "") -> "Line":
        """The same line with a limit."""
        return replace(self, limit=other, note=note)


@dataclass(frozen=True)
class Curve:
    """Growth of the time of one command."""

    work: str
    who: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]


def ratio(line: Line, lines: Sequence[Line]) -> float | None:
    """Time in units of the peer's at the same work and size; None where there is no such peer."""
    peer = next((p for p in lines if p.is_peer and (p.work, p.size) == (line.work, line.size)), None)
    if peer is None or peer.measured is None or line.measured is None:
        return None
    return (line.measured.seconds - line.start_up) / (peer.measured.seconds - peer.start_up)


def kept(line: Line, found: float | None) -> bool | None:
    """Whether a line stayed within its limit; None where it has none, or no peer to compare with."""
    limit, measured = line.limit, line.measured
    if limit == Limit():
        return None
    if measured is None:
        return False
    if limit.ratio is not None and found is None:
        return None
    return (
        (limit.seconds is None or measured.seconds <= limit.seconds)
        and (limit.peak is None or measured.peak <= limit.peak)
        and (limit.ratio is None or (found is not None and found <= limit.ratio))
    )


def told(limit: Limit) -> str:
    """`1.3 × peer, 300 MiB`."""
    parts = [
        None if limit.seconds is None else f"{limit.seconds:g} s",
        None if limit.ratio is None else f"{limit.ratio:g} × peer",
        None if limit.peak is None else f"{limit.peak / MIB:.0f} MiB",
    ]
    return ", ".join(part for part in parts if part)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table whose first columns are text and whose `numbers` from the third on are aligned right."""
    rules = ["---", "---", *["---:"] * numbers, *["---"] * (len(head) - 2 - numbers)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rules, *rows])


def table(lines: Sequence[Line]) -> str:
    """The lines of one size."""
    head = ["work", "who", "seconds", "min–max", "× peer", "peak MiB", "limit", "kept", "note"]
    return markdown(head, [_row(line, lines) for line in lines if line.headline], numbers=4)


def _row(line: Line, lines: Sequence[Line]) -> list[str]:
    what = [f"{line.work}{sized(line)}", line.who + (" (peer)" if line.is_peer else "")]
    found, m = ratio(line, lines), line.measured
    numbers = ["killed", "", "", ""]
    if m is not None:
        shown = "" if found is None else f"{found:.3g}"
        numbers = [f"{m.seconds:.2f}", f"{m.least:.2f}–{m.most:.2f}", shown, f"{m.peak / MIB:.0f}"]
    verdict = {None: "", True: "yes", False: "NO"}[kept(line, found)]
    return [*what, *numbers, told(line.limit), verdict, line.note]


def sized(line: Line) -> str:
    """`, 8 GB`; nothing where nothing grows."""
    return f", {line.size:,g} {line.unit}" if line.unit else ""


def curves(lines: Iterable[Line], unit: str) -> list[Curve]:
    """Everything that was measured at two sizes or more."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for line in lines:
        if line.unit == unit and line.measured is not None:
            found.setdefault((line.work, line.who), []).append((line.size, line.measured.seconds))
    grown = {key: sorted(points) for key, points in found.items() if len(points) > 1}
    return [
        Curve(*key, tuple(size for size, _ in points), tuple(seconds for _, seconds in points))
        for key, points in grown.items()
    ]


def growth(lines: Sequence[Line], unit: str) -> str:
    """Seconds by size; empty where nothing was measured at two sizes."""
    found = curves(lines, unit)
    sizes = sorted({size for curve in found for size in curve.sizes})
    head = ["work", "who", *(f"{size:,g} {unit}" for size in sizes)]
    rows = [[curve.work, curve.who, *(_at(curve, size) for size in sizes)] for curve in found]
    return markdown(head, rows, numbers=len(sizes)) if rows else ""


def _at(curve: Curve, size: float) -> str:
    seconds = dict(zip(curve.sizes, curve.seconds, strict=True)).get(size)
    return "" if seconds is None else f"{seconds:.2f}"


def document(setting: Setting, lines: Sequence[Line]) -> str:
    """Everything, for programs; seconds and bytes."""
    found = [
        {**asdict(line), "ratio": ratio(line, lines), "kept": kept(line, ratio(line, lines))}
        for line in lines
    ]
    return json.dumps({**asdict(setting), "lines": found}, indent=1) + "\n"


def report(machine: str, lines: Sequence[Line]) -> str:
    """The Markdown that `make bench` prints."""
    parts = [machine, table(lines)]
    for unit, title in (("GB", "Seconds by size"), ("leaves", "Seconds by number of leaves")):
        grown = growth(lines, unit)
        parts += [f"### {title}", grown] if grown else []
    return "\n\n".join(parts) + "\n"
