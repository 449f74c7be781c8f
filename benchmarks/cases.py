"""Cases of the benchmarks. Each makes its input in the scratch directory, and yields its lines."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.llama import LLAMA_8B, LLAMA_405B, files, plant, shrunken, write_sparse
from benchmarks.machine import can_reflink, disk_use
from benchmarks.measure import Measured, measure, measure_inside, was_killed
from benchmarks.tables import MIB, Limit, Line

TOOL = str(Path(sys.executable).with_name("ckpt-surgery"))
OURS = "ckpt-surgery"
HARDLINK, COPY = ("--link-mode", "hardlink"), ("--link-mode", "copy")
"""Modes that are named, as `auto` links safetensors only where the file system has reflinks."""
LINKING, COPYING = f"{OURS} {' '.join(HARDLINK)}", f"{OURS} {' '.join(COPY)}"
ORBAX = "Orbax restore, transform, save"
LIBRARIES_PEAK = 250 * MIB
"""Bytes that the interpreter and the libraries may take besides the budget."""

HEAD = "version: 1\nrules:\n"
RENAME = HEAD + "  - match: 'params/layer_(\\d+)/(.*)'\n    to: 'model/block_\\1/\\2'\n"
TRANSPOSE = HEAD + "  - match: w\n    value: cast(x.T, 'bfloat16')\n"
STACK = (
    HEAD + "  - match: 'w(?P<i>\\d+)'\n    to: w\n    by: int(i)\n    value: cast(stack(xs), 'bfloat16')\n"
)
PARTS = ("query", "key", "value", "out", "wi", "wo", "norm1", "norm2")
TWENTY = HEAD + "".join(
    [f"  - {{match: 'opt_state/{i}/.*', drop: true, optional: true}}\n" for i in range(12)]
    + [f"  - {{match: 'params/layer_(\\d+)/(.*{p}.*)', to: 'model/{p}_\\1/\\2'}}\n" for p in PARTS]
)
SPELLED = HEAD + "".join(
    [f"  - {{match: 'opt_state/{i}/(mu|nu)/.*', drop: true, optional: true}}\n" for i in range(4)]
    + [f"  - {{match: '(?P<p>.*)/{i}/(wi_0|wi_1|wq)', to: '${{p}}_{i}', optional: true}}\n" for i in range(8)]
    + [
        f"  - {{match: 'params/layer_(?P<n>\\d+)/(?P<rest>(.*/)?({p}|{p}_b)(/scale)?)', "
        f"to: 'model/{p}_${{n}}/${{rest}}'}}\n"
        for p in PARTS
    ]
)
"""The same work as `TWENTY`, in alternatives and named groups."""


@dataclass(frozen=True)
class Bench:
    """Where a case runs, with inputs of what sizes, and how often."""

    scratch: Path
    """Scratch directory, which is empty at the beginning of each case."""
    nbytes: int
    """Size of the large checkpoints, in bytes."""
    leaf_counts: tuple[int, ...]
    runs: int
    mergekit: Path | None = None
    """Directory of a virtual environment with mergekit."""

    def sizes(self) -> list[int]:
        """A quarter of a GB, doubled up to the size that was asked for."""
        doubled = [2**i * 250_000_000 for i in range(20)]
        return [*(size for size in doubled if size < self.nbytes), self.nbytes]

    def recipe(self, name: str, text: str) -> str:
        path = self.scratch / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    def checkpoint(self, kind: str, size: int, seed: int = 0) -> str:
        """Path of a synthetic checkpoint, which the first call writes."""
        suffix = {"leaves": "", "matrices": "", "llama": "", "flax": ".msgpack"}.get(kind, ".safetensors")
        path = self.scratch / f"{kind}-{size}-{seed}{suffix}"
        if not path.exists():
            command = [sys.executable, "-m", "benchmarks.checkpoints", kind, str(path), str(size), str(seed)]
            subprocess.run(command, check=True)
        return str(path)

    def ours(self, *arguments: str) -> Measured:
        return measure([TOOL, *arguments], self.runs)

    def applied(self, recipe: str, source: str, *options: str) -> Measured:
        """`apply`; `source` may be several, separated by line breaks."""
        out, clear = self.fresh()
        command = [TOOL, "apply", "--quiet", recipe, *source.splitlines(), out, *options]
        return self._measured(command, clear)

    def peer(self, work: str, source: str, *arguments: str) -> Measured | None:
        """A function of `peers` that writes; None where the kernel killed it."""
        out, clear = self.fresh()
        command = [sys.executable, "-m", "benchmarks.peers", work, *source.splitlines(), out, *arguments]
        try:
            return self._measured(command, clear)
        except subprocess.CalledProcessError as error:
            if not was_killed(error):
                raise
            return None

    def fresh(self) -> tuple[str, Callable[[], None]]:
        """A destination, and a function that removes it together with what a killed run left beside it."""

        def clear() -> None:
            for path in self.scratch.glob("out*"):
                shutil.rmtree(path)

        return str(self.scratch / "out"), clear

    def _measured(self, command: list[str], clear: Callable[[], None]) -> Measured:
        try:
            return measure(command, self.runs, clear)
        finally:
            clear()


Case = Callable[[Bench], Iterator[Line]]


def start_up(bench: Bench) -> Iterator[Line]:
    yield Line("--help", OURS, bench.ours("--help"), limit=Limit(seconds=0.2))
    yield Line("--help", "python -c pass", measure([sys.executable, "-c", "pass"], bench.runs))


def leaves(bench: Bench) -> Iterator[Line]:
    """Growth over the number of leaves."""
    for count in bench.leaf_counts:
        yield from _leaves(bench, count)


def _leaves(bench: Bench, count: int) -> Iterator[Line]:
    source, largest = bench.checkpoint("leaves", count), count == bench.leaf_counts[-1]
    shown = largest or count == 10_000
    line = Line("inspect", OURS, bench.ours("inspect", source), count, "leaves", headline=shown)
    yield line.within(Limit(seconds=1.5)) if count == 10_000 else line
    peer = measure([sys.executable, "-m", "benchmarks.peers", "metadata", source], bench.runs)
    yield replace(line, who="Orbax metadata", measured=peer, is_peer=True)
    for work, recipe in (("plan, 20 rules", TWENTY), ("plan, 20 rules with alternatives", SPELLED)):
        planned = bench.ours("plan", bench.recipe("twenty", recipe), source)
        line = Line(work, OURS, planned, count, "leaves", headline=largest)
        yield line.within(Limit(seconds=3.0)) if count == 45_000 else line
    linked = bench.applied(bench.recipe("rename", RENAME), source, *HARDLINK)
    line = Line("rename many", LINKING, linked, count, "leaves", headline=largest)
    yield line
    yield replace(line, who=ORBAX, measured=bench.peer("renamed", source), is_peer=True)


def listing(bench: Bench) -> Iterator[Line]:
    """Listing of one file of 3 GiB: less below 1 GB."""
    for format, peer in (("safetensors", "safe_open"), ("flax", "msgpack_restore")):
        source = bench.checkpoint(format, int(min(1.0, bench.nbytes / 1e9) * 3 * 2**30))
        line = Line(
            f"list {Path(source).stat().st_size / 2**30:.1f} GiB of {format}",
            OURS,
            bench.ours("inspect", source),
        )
        yield line.within(Limit(seconds=0.5, peak=150 * MIB))
        measured = measure([sys.executable, "-m", "benchmarks.peers", f"listed_{format}", source], bench.runs)
        yield replace(line, who=peer, measured=measured, is_peer=True)
        Path(source).unlink()


def rename(bench: Bench) -> Iterator[Line]:
    """Without moving bytes, and with: growth over the size."""
    recipe, tiny = bench.recipe("rename", RENAME), bench.checkpoint("leaves", 1)
    once, peer_once = bench.applied(recipe, tiny, *COPY), bench.peer("copied", tiny)
    assert peer_once is not None
    yield Line("rename, copy, start-up: 1 leaf", COPYING, once)
    yield Line("rename, copy, start-up: 1 leaf", "cp -r, fsync", peer_once)
    for nbytes in bench.sizes():
        yield from _linked(bench, recipe, nbytes)
        yield from _copied(bench, recipe, nbytes, once.seconds, peer_once.seconds)
        shutil.rmtree(bench.checkpoint("matrices", nbytes))


def _linked(bench: Bench, recipe: str, nbytes: int) -> Iterator[Line]:
    source = bench.checkpoint("matrices", nbytes)
    line = _sized(bench, "rename, link", nbytes, bench.applied(recipe, source, *HARDLINK))
    yield replace(line, who=LINKING).within(Limit(seconds=1.0))
    if line.headline:
        for mode in ["auto", *(["reflink"] if can_reflink(bench.scratch) else [])]:
            measured = bench.applied(recipe, source, "--link-mode", mode)
            yield replace(line, who=f"{OURS} --link-mode {mode}", measured=measured)
    yield replace(line, who=ORBAX, measured=bench.peer("renamed", source), is_peer=True)


def _copied(bench: Bench, recipe: str, nbytes: int, once: float, peer_once: float) -> Iterator[Line]:
    source = bench.checkpoint("matrices", nbytes)
    line = _sized(bench, "rename, copy", nbytes, bench.applied(recipe, source, *COPY))
    line = replace(line, who=COPYING, start_up=once)
    yield line.within(Limit(ratio=1.3, peak=300 * MIB), "ratio without start-up")
    peer = bench.peer("copied", source)
    yield replace(line, who="cp -r, fsync", measured=peer, is_peer=True, start_up=peer_once)


def verification(bench: Bench) -> Iterator[Line]:
    """Cost of reading back before publication: a tenth of a copy, a fifth of a second of a link."""
    recipe, source = bench.recipe("rename", RENAME), bench.checkpoint("matrices", bench.nbytes)
    for mode in ("copy", "auto"):
        work, options = f"verification, --link-mode {mode}", ("--link-mode", mode)
        without = bench.applied(recipe, source, *options, "--verify", "none")
        limit = Limit(ratio=1.1) if mode == "copy" else Limit(seconds=without.seconds + 0.2)
        line = _sized(bench, work, bench.nbytes, bench.applied(recipe, source, *options))
        yield line.within(limit)
        yield replace(line, who=f"{OURS} --verify none", measured=without, is_peer=True)


def scan(bench: Bench) -> Iterator[Line]:
    """Llama shards into stacked layers: growth over the size."""
    for nbytes in bench.sizes():
        yield from _scanned(bench, nbytes)
        shutil.rmtree(bench.checkpoint("llama", nbytes))


def _scanned(bench: Bench, nbytes: int) -> Iterator[Line]:
    source, model = bench.checkpoint("llama", nbytes), shrunken(LLAMA_8B, nbytes, "BF16")
    recipe, options = "@hf-llama3-to-jax", model.settings()
    linked = bench.applied(recipe, source, *options, *HARDLINK)
    line = _sized(bench, "safetensors to scanned layers", nbytes, linked)
    yield replace(line, who=LINKING).within(Limit(seconds=1.5))
    if line.headline:
        measured = bench.applied(recipe, source, *options, *COPY)
        yield replace(line, who=COPYING, measured=measured)
    sizes = [str(n) for n in (model.layers, model.heads, model.kv_heads, model.head_dim)]
    peer = bench.peer("scanned", source, *sizes)
    yield replace(line, who="safetensors, NumPy, Orbax save", measured=peer, is_peer=True)


def cast(bench: Bench) -> Iterator[Line]:
    """float32 to bfloat16: growth over the size."""
    for nbytes in bench.sizes():
        source = bench.checkpoint("matrices", nbytes)
        line = _sized(bench, "cast f32 to bf16", nbytes, bench.applied("@cast", source, "--memory", "2GiB"))
        yield line.within(Limit(ratio=0.6, peak=2048 * MIB + LIBRARIES_PEAK), "--memory 2GiB")
        yield replace(line, who=ORBAX, measured=bench.peer("cast", source), is_peer=True)
        shutil.rmtree(source)


def average(bench: Bench) -> Iterator[Line]:
    """The mean of two checkpoints, each of the size."""
    sources = "\n".join(bench.checkpoint("matrices", bench.nbytes, seed) for seed in (0, 1))
    measured = bench.applied("@average", sources, "--memory", "2GiB")
    line = _sized(bench, "average of two", bench.nbytes, measured)
    yield line.within(Limit(peak=2048 * MIB + LIBRARIES_PEAK), "--memory 2GiB")
    peer = bench.peer("averaged", sources)
    yield replace(line, who="Orbax restore, mean, save", measured=peer, is_peer=True)


def _sized(bench: Bench, work: str, nbytes: int, measured: Measured) -> Line:
    return Line(work, OURS, measured, nbytes / 1e9, "GB", headline=nbytes == bench.nbytes)


def budget(bench: Bench) -> Iterator[Line]:
    """One tensor of 4 GiB under 512 MiB, and a stack of 8 × 256 MiB under 256 MiB: less below 1 GB."""
    part = min(1.0, bench.nbytes / 1e9)
    yield from _budgeted(bench, "transposed", TRANSPOSE, bench.checkpoint("tensor", int(part * 2**32)), 512)
    yield from _budgeted(bench, "stacked", STACK, bench.checkpoint("parts", int(part * 2**31)), 256)


def _budgeted(bench: Bench, work: str, recipe: str, source: str, mebibytes: int) -> Iterator[Line]:
    told = f"--memory {mebibytes}MiB"
    measured = bench.applied(bench.recipe(work, recipe), source, "--memory", f"{mebibytes}MiB")
    title = f"{Path(source).stat().st_size / MIB:.0f} MiB {work} and cast"
    line = Line(title, OURS, measured)
    yield line.within(Limit(peak=mebibytes * MIB + LIBRARIES_PEAK), told)
    peer = bench.peer(work, source)
    yield replace(line, who="safetensors, NumPy, Orbax save", measured=peer, is_peer=True)
    Path(source).unlink()


RESTORING = {
    "ours": f"{OURS}: restore",
    "ours memory=256MiB": f"{OURS}: restore, memory=256MiB",
    "transforms": "Orbax restore with transforms",
    "transformations": "Orbax restore, apply_transformations",
}
"""Arguments of `benchmarks.restoring`, and their names in the tables."""


def restore(bench: Bench) -> Iterator[Line]:
    """24 layers as one stack, transposed and cast, in a sharded state of a program that runs.

    The ratio is to the faster of the two peers; the note has that to the other, too.
    """
    source, program = bench.scratch / "layers", [sys.executable, "-m", "benchmarks.restoring"]
    subprocess.run([*program, "write", str(source), str(bench.nbytes)], check=True)
    found = {
        work: measure_inside([*program, who, str(source), *options], bench.runs)
        for work in RESTORING
        for who, *options in [work.split()]
    }
    told = [one for _, runs in found.values() for one in runs]
    if len({one["digest"] for one in told}) != 1:
        raise ValueError(f"the results differ: {told}")
    peers = sorted(("transforms", "transformations"), key=lambda who: found[who][0].seconds)
    for work in (*(work for work in RESTORING if work not in peers), *peers):
        yield _restored(bench, work, *found[work], *(found[peer][0].seconds for peer in peers))


def _restored(bench: Bench, work: str, measured: Measured, runs: list[dict[str, Any]], *peers: float) -> Line:
    """One line; `peers` are the seconds of those that it is compared with."""
    ratios = " and ".join(f"{measured.seconds / seconds:.2f}" for seconds in peers)
    read, stored = max(one["read"] for one in runs), runs[0]["stored"]
    processor = median(one["processor"] for one in runs)
    note = (
        f"{ratios} × peers; {processor:.1f} s of processor time; "
        f"reads {read / stored:.2f} × what is stored; peak is above the start"
    )
    line = _sized(bench, "restore into a sharded state", bench.nbytes, measured)
    if not work.startswith("ours"):
        return replace(line, who=RESTORING[work], is_peer=True, note=note)
    budget = 256 * MIB if "256MiB" in work else 2048 * MIB
    peak = runs[0]["result"] + budget + LIBRARIES_PEAK
    limit = Limit(ratio=0.8, peak=peak) if work == "ours" else Limit(peak=peak)
    return replace(line, who=RESTORING[work]).within(limit, note)


def sparse(bench: Bench) -> Iterator[Line]:
    """All of Llama 3.1 405B in float32, 1.6 TB of holes with planted numbers, into stacked layers."""
    source, (out, clear) = bench.scratch / "405b", bench.fresh()
    write_sparse(source, files(LLAMA_405B, "F32"))
    plant(source, LLAMA_405B, "F32")
    work, options = "Llama 3.1 405B, sparse, to scanned layers", LLAMA_405B.settings()
    nbytes = sum(path.stat().st_size for path in source.iterdir())
    planned = bench.ours("plan", "@hf-llama3-to-jax", str(source), *options)
    yield Line(f"{work}: plan", OURS, planned, note=f"{nbytes / 1e12:.2f} TB apparent")
    before = disk_use(bench.scratch)
    command = [TOOL, "apply", "--quiet", "@hf-llama3-to-jax", str(source), out, *options, *HARDLINK]
    linked = measure(command, bench.runs, clear)
    after = disk_use(bench.scratch)
    looked = [sys.executable, "-m", "benchmarks.planted", out]
    found = subprocess.run(looked, check=True, capture_output=True, text=True).stdout.strip()
    used = (
        f"disk use {before / 1e6:.2f} → {after / 1e6:.2f} MB; {found} planted elements found by TensorStore"
    )
    yield Line(f"{work}: apply", LINKING, linked, limit=Limit(seconds=1.5), note=used)


_WRITING: tuple[Case, ...] = (rename, verification, scan, cast, average, budget)
CASES: dict[str, Case] = {
    case.__name__: case for case in (start_up, listing, leaves, *_WRITING, restore, sparse)
}
