"""`make bench`: speed and memory of the tool beside its peers, in one run, on this machine.

`python -m benchmarks.bench [--size 1GB] [--leaves 10000] [--runs 3] [--only NAME]`
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Measured, measure

TOOL = str(Path(sys.executable).with_name("ckpt-surgery"))
RULES = "version: 1\nunmatched: error\nrules:\n"
RENAME = RULES + "  - match: 'params/layer_(\\d+)/(.*)'\n    to: 'model/block_\\1/\\2'\n"
CAST = RULES + "  - match: '.*'\n    value: cast(x, 'bfloat16')\n"


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    work: str
    who: str
    measured: Measured


@dataclass(frozen=True)
class Bench:
    """Where and how large."""

    scratch: Path
    nbytes: int
    leaves: int
    runs: int

    def recipe(self, name: str, text: str) -> str:
        path = self.scratch / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    def checkpoint(self, kind: str, size: int) -> str:
        path = self.scratch / f"{kind}-{size}"
        if not path.exists():
            subprocess.run(
                [sys.executable, "-m", "benchmarks.checkpoints", kind, str(path), str(size)], check=True
            )
        return str(path)

    def fresh(self, name: str) -> tuple[str, Callable[[], None]]:
        """A destination, and what removes it before each run."""
        path = self.scratch / name
        return str(path), lambda: shutil.rmtree(path, ignore_errors=True)


def start_up(bench: Bench) -> Iterator[Line]:
    yield Line("--help", "ckpt-surgery", measure([TOOL, "--help"], bench.runs))
    yield Line("python -c pass", "python", measure([sys.executable, "-c", "pass"], bench.runs))


def many_leaves(bench: Bench) -> Iterator[Line]:
    source = bench.checkpoint("leaves", bench.leaves)
    recipe = bench.recipe("rename-many", RENAME)
    yield Line(
        f"inspect, {bench.leaves} leaves", "ckpt-surgery", measure([TOOL, "inspect", source], bench.runs)
    )
    yield Line(
        f"plan, {bench.leaves} leaves", "ckpt-surgery", measure([TOOL, "plan", recipe, source], bench.runs)
    )
    code = f"import orbax.checkpoint as o; print(len(str(o.PyTreeCheckpointer().metadata({source!r}))))"
    yield Line(f"metadata, {bench.leaves} leaves", "Orbax", measure([sys.executable, "-c", code], 1))


def many_rules(bench: Bench) -> Iterator[Line]:
    source = bench.checkpoint("leaves", 45_000)
    names = ("query", "key", "value", "out", "wi", "wo", "norm1", "norm2")
    rules = [f"  - {{match: 'params/layer_(\\d+)/(.*{n}.*)', to: 'model/{n}_\\1/\\2'}}\n" for n in names]
    spare = [f"  - {{match: 'opt_state/{i}/.*', drop: true, optional: true}}\n" for i in range(12)]
    recipe = bench.recipe("twenty-rules", RULES + "".join(spare + rules))
    yield Line(
        "plan, 45,000 leaves, 20 rules", "ckpt-surgery", measure([TOOL, "plan", recipe, source], bench.runs)
    )


def rename(bench: Bench) -> Iterator[Line]:
    yield from _against_orbax(bench, "rename", RENAME)


def cast(bench: Bench) -> Iterator[Line]:
    yield from _against_orbax(bench, "cast", CAST)


def _against_orbax(bench: Bench, work: str, text: str) -> Iterator[Line]:
    source = bench.checkpoint("bytes", bench.nbytes)
    destination, clear = bench.fresh("out")
    told = f"{work}, {bench.nbytes / 1e9:.2f} GB"
    command = [TOOL, "apply", bench.recipe(work, text), source, destination]
    yield Line(told, "ckpt-surgery", measure(command, bench.runs, clear))
    peer = [sys.executable, "-m", "benchmarks.orbax_peer", work, source, destination]
    yield Line(told, "Orbax", measure(peer, bench.runs, clear))
    copy = ["sh", "-c", 'cp -r "$0" "$1" && sync "$1"', source, destination]
    yield Line(told, "cp -r and sync", measure(copy, bench.runs, clear))


CASES = (start_up, many_leaves, many_rules, rename, cast)


def table(lines: list[Line]) -> str:
    """Markdown; the ratio is to the first line of the same work."""
    rows = ["| work | who | seconds | ratio | peak memory |", "|---|---|---:|---:|---:|"]
    first: dict[str, float] = {}
    for line in lines:
        base = first.setdefault(line.work, line.measured.seconds)
        seconds, peak = line.measured.seconds, line.measured.peak / 2**20
        rows.append(f"| {line.work} | {line.who} | {seconds:.2f} | {seconds / base:.2f} | {peak:.0f} MiB |")
    return "\n".join(rows)


def machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"
    )


def _bytes(text: str) -> int:
    units = {"MB": 10**6, "GB": 10**9, "MIB": 2**20, "GIB": 2**30}
    unit = next(u for u in sorted(units, key=len, reverse=True) if text.upper().endswith(u))
    return int(float(text[: -len(unit)]) * units[unit])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--size", type=_bytes, default=10**9, help="bytes of the large checkpoint, such as 8GB"
    )
    parser.add_argument("--leaves", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=[case.__name__ for case in CASES], action="append")
    parser.add_argument("--scratch", type=Path, help="an empty directory to work in, on the disk that counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckpt-surgery-bench-") as temporary:
        scratch = options.scratch or Path(temporary)
        bench = Bench(scratch, options.size, options.leaves, options.runs)
        cases = [c for c in CASES if not options.only or c.__name__ in options.only]
        lines = [line for case in cases for line in case(bench)]
    print(f"{machine()}; median of {options.runs} runs\n\n{table(lines)}")


if __name__ == "__main__":
    main()
