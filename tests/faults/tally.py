"""Counts of the faults that were tried, and the table of them in docs/reliability.md.

Tests count with `Tally.add`. If the environment names a directory, each process writes its counts there, and
`python -m tests.faults.tally DIRECTORY` puts the table of all of them into the page.
"""

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

DIRECTORY = "FAULTS_TALLY"
"""The variable of the environment that names the directory."""
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN = "<!-- counts: written by `make faults`, do not edit -->"
END = "<!-- end of counts -->"
KINDS = (
    "a system call fails",
    "killed at a system call",
    "no space, limits",
    "source truncated",
    "source file deleted",
    "bit flipped in a result",
    "two runs to one destination",
    "shared file rewritten",
    "hostile input",
    "memory cap",
    "killed at a request to a store",
)
"""What the table must have a row for. A run of some of the suite does not change the page."""

Row = tuple[str, str, str]
"""Kind of the fault, where it was tried, how it ended."""


class Tally:
    """Counts of one process."""

    def __init__(self) -> None:
        self.counts: Counter[Row] = Counter()

    def add(self, kind: str, where: str, ended: str, times: int = 1) -> None:
        """Count a fault that was tried; `kind` is one of KINDS."""
        assert kind in KINDS, kind
        self.counts[kind, where, ended] += times

    def save(self) -> None:
        """Write the counts into the directory that the environment names, if it names one."""
        if (directory := os.environ.get(DIRECTORY)) and self.counts:
            path = Path(directory)
            path.mkdir(parents=True, exist_ok=True)
            rows = [[*row, count] for row, count in self.counts.items()]
            (path / f"{os.getpid()}.json").write_text(json.dumps(rows))


def collected(directory: Path) -> Counter[Row]:
    """The counts of all processes."""
    counts: Counter[Row] = Counter()
    for file in sorted(directory.glob("*.json")):
        for kind, where, ended, count in json.loads(file.read_text()):
            counts[kind, where, ended] += count
    return counts


def table(counts: Mapping[Row, int]) -> str:
    """The counts as a table of Markdown: one row for each kind and place, without details behind a comma."""
    lines = ["| fault | where | tried | how it ended |", "|---|---|---|---|"]
    rows: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for (kind, where, ended), count in counts.items():
        rows[KINDS.index(kind), where.partition(", ")[0]][ended] += count
    for (number, where), ends in sorted(rows.items()):
        ordered = sorted(ends.items(), key=lambda each: (-each[1], each[0]))
        how = ", ".join(f"{ended}: {count}" for ended, count in ordered)
        lines.append(f"| {KINDS[number]} | {where} | {ends.total()} | {how} |")
    lines.append(f"| **all** | | **{sum(counts.values())}** | |")
    return "\n".join(lines)


def with_table(page: str, counts: Mapping[Row, int]) -> str:
    """The page with the table of these counts in place of the one that it has."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(counts)}\n\n{END}{after}"


def missing(counts: Iterable[Row]) -> list[str]:
    """The kinds of which nothing was tried."""
    tried = {kind for kind, _, _ in counts}
    return [kind for kind in KINDS if kind not in tried]


def main() -> None:
    """Put the counts in the directory that is named into the page."""
    counts = collected(Path(sys.argv[1]))
    if lacking := missing(counts):
        print(f"docs/reliability.md is as it was: nothing was tried of {', '.join(lacking)}")
        return
    PAGE.write_text(with_table(PAGE.read_text(), counts))
    print(f"docs/reliability.md: {sum(counts.values())} faults")


if __name__ == "__main__":
    main()
