"""docs/performance.md, its pictures, and the table of the README: `make performance`.

`python -m benchmarks.performance RESULTS` reads the JSON files that `make bench` has written into a
directory. A work that several of them have is taken from the latest.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting
from benchmarks.measure import Measured
from benchmarks.plot import THEMES, picture
from benchmarks.tables import MIB, Limit, Line, curves, growth, markdown, ratio, sized

ROOT = Path(__file__).parent.parent
Results = Sequence[tuple[Setting, Sequence[Line]]]
PICTURES = {"GB": "growth-size", "leaves": "growth-leaves"}
"""The names of the pictures, by the unit of what grows."""
SHOWN = (
    "rename, link",
    "rename, copy",
    "safetensors to scanned layers",
    "cast f32 to bf16",
    r"\d+ MiB transposed and cast",
    "inspect",
    "rename many",
    r"list .* of flax",
    "restore into a sharded state",
    "Llama 3.1 405B, sparse, to scanned layers: apply",
)
"""The works in the table of the README, in its order."""
TABLE = re.compile(r"(?<=<!-- speed -->\n).*?(?=<!-- /speed -->)", re.DOTALL)
PAIRED = re.compile(r"(?<=<!-- paired -->\n).*?(?=<!-- /paired -->)", re.DOTALL)
"""Measurements of `benchmarks.paired` in the page."""
BUSY = 0.25
"""Processes that want to run, for each core, from which on a machine counts as busy."""

INTRODUCTION = """\
# Performance

`make performance` measures the tool and what people use for the same work today, side by side on one
machine. It writes this page, its pictures, and the table of the [README](../README.md).

- Every command is a process of its own. Seconds are those of the clock, start-up included; the peak is the
    largest resident memory that the kernel reports.
- A command runs once to warm up, then as often as the column says. The table has the median.
- Inputs are synthetic: `benchmarks/checkpoints.py` and `benchmarks/llama.py` make them.
- `benchmarks/cases.py` has our commands. `benchmarks/peers.py` has what they are compared with: the same
    work, with the same result, which tests compare."""

AGAIN = """\
## Measure it on your machine

```text
make performance                                   # all works: up to an hour, 15 GB of disk, 10 GB of memory
make performance BENCH='--only cast --only scan'   # two works; the others stay as they were measured before
make performance SIZE=8GB                          # larger checkpoints
make performance BENCH='--mergekit DIRECTORY'      # merges too; installs mergekit in DIRECTORY
make bench                                         # tables in benchmarks/results/, and no page
```

Nothing else should run meanwhile. `--runs N` repeats each command more often, and `--scratch DIRECTORY` names
the disk that counts."""


# --- results --------------------------------------------------------------------------------------


def read(directory: Path) -> Results:
    """The runs in a directory, the earliest first, each without the works that a later one has measured."""
    found = sorted((_read(path) for path in directory.glob("*.json")), key=lambda run: run[0].date)
    later: set[str] = set()
    kept = []
    for setting, lines in reversed(found):
        kept.append((setting, [line for line in lines if line.work not in later]))
        later |= {line.work for line in lines}
    return [run for run in reversed(kept) if run[1]]


def _read(path: Path) -> tuple[Setting, list[Line]]:
    document = json.loads(path.read_text(encoding="utf-8"))
    setting = Setting(**{name: document[name] for name in ("date", "machine", "load", "cores", "command")})
    return setting, [_line(entry) for entry in document["lines"]]


def _line(entry: dict[str, Any]) -> Line:
    fields = {name: value for name, value in entry.items() if name not in ("ratio", "kept")}
    measured = fields.pop("measured")
    limit = Limit(**fields.pop("limit"))
    return Line(**fields, measured=None if measured is None else Measured(**measured), limit=limit)


# --- the page -------------------------------------------------------------------------------------


def page(results: Results, paired: str = "") -> str:
    """docs/performance.md. `paired`: what the page before says of an earlier commit."""
    lines = [line for _, run in results for line in run]
    parts = [INTRODUCTION, "## When, where, by which command", *_settings(results)]
    for unit, title in (("GB", "Growth with the size"), ("leaves", "Growth with the number of leaves")):
        grown = growth(lines, unit)
        parts += (
            [f"## {title}", "Seconds; both axes are logarithmic.", _shown(unit, title), grown]
            if grown
            else []
        )
    parts += ["## All results", _table(lines)]
    parts += ["## Beside an earlier commit", f"<!-- paired -->\n{paired}<!-- /paired -->"]
    return "\n\n".join([*parts, AGAIN]) + "\n"


def _settings(results: Results) -> Iterator[str]:
    """The machines, each with its runs."""
    for machine in dict.fromkeys(setting.machine for setting, _ in results):
        runs = [setting for setting, _ in results if setting.machine == machine]
        yield f"On `{machine}`:"
        yield "\n".join(f"- {run.date[:10]}, `{run.command}`, at a load of {run.load:.1f}" for run in runs)
    if any(_is_busy(setting) for setting, _ in results):
        yield "**The machine was busy with other work: times say little, peaks are right.**"


def _shown(unit: str, title: str) -> str:
    return "\n".join(
        f"![{title}](pictures/{PICTURES[unit]}-{theme.name}.svg#gh-{theme.name}-mode-only)"
        for theme in THEMES
    )


def _table(lines: Sequence[Line]) -> str:
    head = ["work", "who", "seconds", "runs", "× peer", "peak MiB", "note"]
    return markdown(head, [_row(line, lines) for line in lines if line.headline], numbers=4)


def _row(line: Line, lines: Sequence[Line]) -> list[str]:
    what, m, found = [f"{line.work}{sized(line)}", line.who], line.measured, ratio(line, lines)
    if m is None:
        return [*what, "out of memory", "", "", "", line.note]
    times = "" if found is None or line.is_peer else f"{found:.2g}"
    peak = f"{m.peak / MIB:.0f}"
    return [*what, f"{m.seconds:.2f}", str(m.runs), times, peak, line.note]


# --- the table of the README ----------------------------------------------------------------------


def short_table(lines: Sequence[Line]) -> str:
    """The works of `SHOWN` beside their peers. Raises ValueError where one was not measured."""
    head = ["work", "ckpt-surgery", "peak", "peer", "its time", "its peak"]
    rules = ["---", "---:", "---:", "---", "---:", "---:"]
    rows = [_short_row(work, lines) for work in SHOWN]
    return "".join("| " + " | ".join(row) + " |\n" for row in [head, rules, *rows])


def _short_row(work: str, lines: Sequence[Line]) -> list[str]:
    """The largest size of a work, by the first of our commands and the first peer."""
    found = [line for line in lines if line.headline and re.fullmatch(work, line.work)]
    if not found:
        raise ValueError(f"`{work}` was not measured: run `make performance` for all works")
    largest = [line for line in found if line.size == max(line.size for line in found)]
    ours = next(line for line in largest if not line.is_peer)
    peer = next((line for line in largest if line.is_peer), None)
    options = ours.who.removeprefix("ckpt-surgery").strip()
    return [
        f"{ours.work}{sized(ours)}" + (f", `{options}`" if options.startswith("--") else ""),
        *_told(ours.measured),
        *(["", "", ""] if peer is None else [peer.who, *_told(peer.measured)]),
    ]


def _told(measured: Measured | None) -> list[str]:
    """`1.2 s` and `78 MiB`."""
    if measured is None:
        return ["out of memory", ""]
    seconds = measured.seconds
    return [f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s", f"{measured.peak / MIB:.0f} MiB"]


def caption(results: Results) -> str:
    """When and where the numbers in the README were measured."""
    dates = sorted({setting.date[:10] for setting, _ in results})
    machines = "; ".join(dict.fromkeys(f"`{setting.machine.partition(';')[0]}`" for setting, _ in results))
    busy = (
        " The machine was busy with other work: times say little, peaks are right."
        if any(_is_busy(setting) for setting, _ in results)
        else ""
    )
    return f"Measured {' to '.join([dates[0], *dates[1:][-1:]])} on {machines}.{busy}"


def _is_busy(setting: Setting) -> bool:
    return setting.load > BUSY * setting.cores


def write(results: Results, root: Path = ROOT) -> None:
    """The page, its pictures, and the table between the marks of the README."""
    lines = [line for _, run in results for line in run]
    readme = (root / "README.md").read_text(encoding="utf-8")
    readme = TABLE.sub(lambda _: f"{caption(results)}\n\n{short_table(lines)}", readme)
    for unit, name in PICTURES.items():
        found = curves(lines, unit)
        for theme in THEMES if found else ():
            path = root / "docs" / "pictures" / f"{name}-{theme.name}.svg"
            path.write_text(picture(found, unit, theme), encoding="utf-8")
    path = root / "docs" / "performance.md"
    paired = PAIRED.search(path.read_text(encoding="utf-8")) if path.exists() else None
    path.write_text(page(results, paired[0] if paired else ""), encoding="utf-8")
    (root / "README.md").write_text(readme, encoding="utf-8")


if __name__ == "__main__":
    write(read(Path(sys.argv[1])))
