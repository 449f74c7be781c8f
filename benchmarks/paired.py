"""An earlier commit and this one in turns, as a table: `python -m benchmarks.paired CHECKOUT`.

CHECKOUT is another checkout of this repository, from `git worktree add --detach CHECKOUT COMMIT`. The table
replaces the one in docs/performance.md. Peaks and processor time hardly depend on what else the machine does.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bench import parse_size
from benchmarks.cases import HEAD, RENAME, TWENTY, Bench
from benchmarks.machine import machine
from benchmarks.measure import Measured, measure_in_turns
from benchmarks.performance import PAIRED, ROOT
from benchmarks.tables import MIB, markdown

CAST = HEAD + "  - {match: '(.*)', value: \"cast(x, 'bfloat16')\"}\n"
LEAVES = 45_000
COLUMNS = ("work", "commit", "processor s", "×", "peak MiB")


def works(bench: Bench) -> Iterator[tuple[str, list[str]]]:
    """Commands that are measured, with the arguments of the program."""
    leaves, matrices = bench.checkpoint("leaves", LEAVES), bench.checkpoint("matrices", bench.nbytes)
    rename, twenty, cast = (
        bench.recipe(name, text) for name, text in (("rename", RENAME), ("twenty", TWENTY), ("cast", CAST))
    )
    out = bench.fresh()[0]
    size = f"{bench.nbytes / 1e9:g} GB"
    yield "`--help`", ["--help"]
    yield f"plan, {LEAVES:,} leaves, 1 rule", ["plan", rename, leaves, "-q"]
    yield f"plan, {LEAVES:,} leaves, 20 rules", ["plan", twenty, leaves, "-q"]
    yield f"rename, {size}", ["apply", rename, matrices, out, "-q"]
    yield f"cast f32 to bf16, {size}", ["apply", cast, matrices, out, "-q"]


def rows(work: str, commits: Sequence[str], both: Sequence[Measured]) -> Iterator[list[str]]:
    """The earlier commit, then this one, with how many times as long it takes."""
    times = f"{both[1].processor / both[0].processor:.2f}"
    for commit, measured, ratio in zip(commits, both, ("", times), strict=True):
        yield [work, commit, f"{measured.processor:.2f}", ratio, f"{measured.peak / MIB:.0f}"]


def compare(checkout: Path, bench: Bench) -> Iterator[list[str]]:
    """The rows of the table: medians of the processor time, and the largest resident memory."""
    roots, clear = (checkout, ROOT), bench.fresh()[1]
    commits = [commit_of(root) for root in roots]
    for work, arguments in works(bench):
        program = [sys.executable, "-m", "ckpt_surgery", *arguments]
        both = measure_in_turns(
            [["env", f"PYTHONPATH={root}", *program] for root in roots], bench.runs, clear
        )
        yield from rows(work, commits, both)
        clear()


def commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--size", type=parse_size, default="1GB")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ckpt-surgery-bench-"))
    try:
        bench = Bench(scratch, options.size, (), options.runs)
        table = markdown(COLUMNS, list(compare(options.checkout.resolve(), bench)), 3)
        said = (
            f"In turns, {datetime.now(UTC):%Y-%m-%d}, on `{machine(scratch)}`: medians of the processor time."
        )
    finally:
        shutil.rmtree(scratch)
    page = ROOT / "docs" / "performance.md"
    text = PAIRED.sub(lambda _: f"{said}\n\n{table}\n", page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
