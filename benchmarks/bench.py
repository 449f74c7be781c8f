"""`make bench`: speed and memory of the tool beside its peers, in one run, on this machine."""

import argparse
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import cases, merging
from benchmarks.cases import Bench
from benchmarks.machine import Setting, machine
from benchmarks.tables import Line, document, report, sized

RESULTS = Path(__file__).parent / "results"
CASES = {**cases.CASES, "merge": merging.merge}
RUNS, LEAVES = 3, "100,1000,10000,45000"
UNITS = {"MB": 10**6, "GB": 10**9, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str) -> int:
    """`8GB` or `512MiB` in bytes."""
    for unit, factor in UNITS.items():
        number = text.upper().removesuffix(unit)
        if number != text.upper():
            return int(float(number) * factor)
    raise argparse.ArgumentTypeError(f"`{text}` is no size such as 8GB or 512MiB")


def parse_counts(text: str) -> tuple[int, ...]:
    """`100,1000` as numbers, ascending."""
    return tuple(sorted(int(part) for part in text.split(",")))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    parser.add_argument("--size", type=parse_size, default="1GB", help="size of large checkpoints, e.g. 8GB")
    leaves = "numbers of leaves, separated by commas, at which growth is measured"
    parser.add_argument("--leaves", type=parse_counts, default=LEAVES, help=leaves)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each command, besides a warm-up")
    parser.add_argument("--only", choices=CASES, action="append", help="run only this case; may be repeated")
    where = "directory to work in, on the disk that counts; about three times the size must be free"
    parser.add_argument("--scratch", type=Path, help=where)
    peer = "directory of a virtual environment with mergekit, which is made where it is not there"
    parser.add_argument("--mergekit", type=Path, help=peer)
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the tables")
    return parser.parse_args(arguments)


def run_case(name: str, options: argparse.Namespace) -> list[Line]:
    """Runs one case in a directory of its own, and removes the directory."""
    with tempfile.TemporaryDirectory(prefix="ckpt-surgery-bench-", dir=options.scratch) as scratch:
        lines = []
        bench = Bench(Path(scratch), options.size, options.leaves, options.runs, options.mergekit)
        for line in CASES[name](bench):
            seconds = "killed" if line.measured is None else f"{line.measured.seconds:.2f} s"
            print(f"{line.work}{sized(line)}: {line.who}: {seconds}", file=sys.stderr, flush=True)
            lines.append(line)
    return lines


def setting(options: argparse.Namespace) -> Setting:
    """Describes a run, with the command that repeats it anywhere."""
    more = [f"--only {name}" for name in options.only or ()] + (
        ["--mergekit DIRECTORY"] if options.mergekit else []
    )
    if options.runs != RUNS:
        more.append(f"--runs {options.runs}")
    if options.leaves != parse_counts(LEAVES):
        more.append(f"--leaves {','.join(map(str, options.leaves))}")
    command = f"make performance SIZE={options.size / 1e9:g}GB" + (
        f" BENCH='{' '.join(more)}'" if more else ""
    )
    here = machine(options.scratch or Path(tempfile.gettempdir()))
    cores = os.cpu_count() or 1
    return Setting(f"{datetime.now(UTC):%Y-%m-%d %H:%M}", here, round(os.getloadavg()[0], 1), cores, command)


def main() -> None:
    options = parse()
    # If memory runs out, the kernel should end the command that took it, and nothing else.
    # Commands inherit this, and the largest process of those that have it goes first.
    Path("/proc/self/oom_score_adj").write_text("500")
    names = options.only or list(CASES)
    here = setting(options)
    lines = [line for name in names for line in run_case(name, options)]
    stem = "-".join([f"{options.size / 1e9:g}GB", *(options.only or [])])
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{stem}.md").write_text(report(here.machine, lines))
    (options.results / f"{stem}.json").write_text(document(here, lines))
    print(report(here.machine, lines))


if __name__ == "__main__":
    main()
