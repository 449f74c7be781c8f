"""The benchmarks: every tool does the same work, is measured alike, and pages are made of the results."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from benchmarks import (
    bench,
    cases,
    checkpoints,
    machine,
    merging,
    peers,
    performance,
    planted,
    tables,
)
from benchmarks import measure as measuring
from benchmarks.llama import LLAMA_8B, LLAMA_405B, Llama, files, plant, shapes, shrunken, write_sparse
from benchmarks.measure import (
    Measured,
    Run,
    measure_inside,
    run_once,
    summary,
    was_killed,
)
from benchmarks.tables import Limit, Line
from ckpt_surgery.planner.plan import Transfer
from tests.support.checkpoints import quiet, restored
from tests.support.comparing import assert_same

KEYTABLE = Path(__file__).parent / "data" / "keytables" / "llama3.1-8b.json"
NARROW = Llama(layers=11, heads=4, kv_heads=2, head_dim=6, embed=10, mlp=14, vocab=33, shards=3)
MIB = 2**20


def settings(model: Llama) -> list[str]:
    return [word for word in model.settings() if word != "--set"]


def by_tool(recipe: str, tmp_path: Path, *sources: Path, **options: Any) -> dict[str, Any]:
    ckpt_surgery.apply(recipe, *sources, dst=tmp_path / "ours", **options)
    return restored(tmp_path / "ours")


# --- inputs -------------------------------------------------------------------------------------------


def test_the_models_are_those_that_were_published() -> None:
    published = json.loads(KEYTABLE.read_text())["disk"]
    assert list(shapes(LLAMA_8B).items()) == [(name, tuple(shape)) for name, shape in published.items()]
    assert sum(int(np.prod(shape)) for shape in shapes(LLAMA_405B).values()) == 405_853_388_800
    model = shrunken(LLAMA_8B, 10**9, "BF16")
    assert (model.layers, model.heads, model.embed, model.vocab) == (32, 32, 1024, 32064)
    assert sum(file.nbytes for file in files(model, "BF16")) == pytest.approx(10**9, rel=0.02)


def test_what_is_planted_is_found_where_the_recipe_puts_it(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model", files(NARROW, "F32"))
    by_tool("@hf-llama3-to-jax", tmp_path, tmp_path / "model", set=settings(NARROW))
    with pytest.raises(ValueError, match="not where it belongs"):
        planted.main(tmp_path / "ours", NARROW)
    shutil.rmtree(tmp_path / "ours")
    plant(tmp_path / "model", NARROW, "F32")
    found = by_tool("@hf-llama3-to-jax", tmp_path, tmp_path / "model", set=settings(NARROW))
    assert planted.main(tmp_path / "ours", NARROW) == 14
    assert sum(int(np.count_nonzero(array)) for array in found.values()) == 14


# --- peers do the tool's work -------------------------------------------------------------------------

SMALL_LLAMA = shrunken(LLAMA_8B, 2 * MIB, "BF16")
SIZES = tuple(
    str(n) for n in (SMALL_LLAMA.layers, SMALL_LLAMA.heads, SMALL_LLAMA.kv_heads, SMALL_LLAMA.head_dim)
)
WORKS = {
    "renamed": ("matrices", 1, cases.RENAME, ()),
    "cast": ("matrices", 1, "@cast", ()),
    "averaged": ("matrices", 2, "@average", ()),
    "scanned": ("llama", 1, "@hf-llama3-to-jax", SIZES),
    "transposed": ("tensor", 1, cases.TRANSPOSE, ()),
    "stacked": ("parts", 1, cases.STACK, ()),
    "copied": ("leaves", 1, "version: 1\n", ()),
}
"""Kind and number of the checkpoints, the recipe, and what the peer is told besides, by the peer's work."""


@pytest.mark.parametrize("work", WORKS)
def test_peers_do_what_the_tool_does(work: str, tmp_path: Path) -> None:
    kind, count, recipe, told = WORKS[work]
    size = {"llama": 2 * MIB, "leaves": 3}.get(kind, 41_000)
    suffix = ".safetensors" if kind in ("tensor", "parts") else ""
    sources = [tmp_path / f"source{n}{suffix}" for n in range(count)]
    with quiet():
        for n, source in enumerate(sources):
            checkpoints.build(kind, source, size, n)
    options = {"set": settings(SMALL_LLAMA)} if kind == "llama" else {}
    ours = by_tool(recipe, tmp_path, *sources, **options)
    peer: Callable[..., None] = peers.WORKS[work]
    with quiet():
        peer(*map(str, sources), str(tmp_path / "peer"), *told)
    assert_same(ours, restored(tmp_path / "peer"))


@pytest.mark.parametrize("who", ["ours", "ours memory=2MiB", "transforms", "transformations"])
def test_restoring_into_a_state(who: str, tmp_path: Path) -> None:
    """Every layer, transposed and cast, is in its place, on the devices of the state."""
    import jax

    from benchmarks import restoring
    from tests.support.checkpoints import restored_leaves

    with quiet():
        restoring.write(str(tmp_path / "layers"), "1_000_000")
        target = restoring.state(str(tmp_path / "layers"))
        work, *options = who.split()
        found = restoring.WHO[work](str(tmp_path / "layers"), target, *options)
    layers = restored(tmp_path / "layers")
    assert jax.tree.map(lambda a: a.sharding, found) == jax.tree.map(lambda t: t.sharding, target)
    assert all(len(array.addressable_shards) == 8 for array in jax.tree.leaves(found))
    for key, array in restored_leaves(found).items():
        part = key.removeprefix("params/layers/")
        wanted = np.stack([layers[f"params/layers_{i}/{part}"].T.astype(array.dtype) for i in range(24)])
        assert array.dtype == "bfloat16"
        np.testing.assert_array_equal(np.asarray(array), wanted)


@pytest.mark.parametrize("method", merging.CONFIGS)
def test_the_tool_takes_every_configuration_of_a_merge(method: str, tmp_path: Path) -> None:
    model = shrunken(LLAMA_8B, 400_000, "BF16")
    for seed, name in enumerate(("first", "second")):
        checkpoints.build("llama", tmp_path / name, 400_000, seed)
        (tmp_path / name / "config.json").write_text(json.dumps(merging.described(model)))
    config = tmp_path / "merge.yaml"
    config.write_text(json.dumps({**merging.placed(merging.CONFIGS[method], tmp_path), "dtype": "bfloat16"}))
    plan = ckpt_surgery.plan_merge(config)
    assert len(plan.steps) == 9 * (48 if method == "passthrough" else 32) + 3
    assert {step.transfer is Transfer.COMPUTE for step in plan.steps} == {method != "passthrough"}
    assert plan.warnings == ()


# --- measuring ----------------------------------------------------------------------------------------


def test_peak_memory_is_that_of_the_process_and_what_measures_is_small() -> None:
    """Measured from a small process, as in `make bench`: a child starts with the peak of its parent."""
    code = (
        "import sys; from benchmarks.measure import run_once\n"
        f"for code in ('pass', 'x = bytearray({200 * MIB})'):\n"
        "    print(run_once([sys.executable, '-c', code]).peak)\n"
        "import benchmarks.bench; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    small, large, loaded = done.stdout.splitlines()
    assert int(small) < 40 * MIB
    assert 190 * MIB < int(large) - int(small) < 210 * MIB
    assert not {"numpy", "jax", "ckpt_surgery", "tensorstore", "safetensors"} & {*loaded.split()}


@pytest.mark.parametrize(
    ("code", "killed"),
    [("raise SystemExit('no such thing')", False), ("import os; os.kill(os.getpid(), 9)", True)],
)
def test_a_command_that_fails_is_an_error(code: str, killed: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_once([sys.executable, "-c", code])
    assert capfd.readouterr().err == ("" if killed else "no such thing\n")
    assert was_killed(caught.value) is killed


def test_what_a_command_says_of_itself() -> None:
    code = "import json; print('first'); print(json.dumps({'seconds': 2.5, 'peak': 7, 'read': 3}))"
    found, told = measure_inside([sys.executable, "-c", code], 2)
    assert found == Measured(2.5, 2.5, 2.5, 7, 2)
    assert told == [{"seconds": 2.5, "peak": 7, "read": 3}] * 3
    assert summary([Run(3.0, 10), Run(1.0, 30), Run(1.5, 20)]) == Measured(1.5, 1.0, 3.0, 30, 3)


def test_the_machine_is_told_without_its_name(tmp_path: Path) -> None:
    told = machine.machine(tmp_path)
    assert f"{os.cpu_count()} cores" in told
    assert all(f"{name} " in told for name in ("Python", *machine.LIBRARIES))
    assert os.uname().nodename not in told
    (tmp_path / "a").write_bytes(os.urandom(MIB))
    os.link(tmp_path / "a", tmp_path / "b")
    with open(tmp_path / "hole", "wb") as stream:
        stream.truncate(2**40)
    assert MIB <= machine.disk_use(tmp_path) < MIB + 2**16


# --- tables -------------------------------------------------------------------------------------------


def measured(seconds: float, peak: int = MIB) -> Measured:
    return Measured(seconds, seconds / 2, seconds * 2, peak, 3)


SMALL = Line("copy", "ckpt-surgery", measured(1.5, 90 * MIB), 1, "GB", headline=False, start_up=0.5)
LARGE = replace(SMALL, measured=measured(4.5, 301 * MIB), size=2, headline=True)
PEERS = [
    replace(SMALL, who="cp", measured=measured(2.25), is_peer=True, start_up=0.25),
    replace(LARGE, who="cp", measured=measured(4.25), is_peer=True, start_up=0.25),
]
LINES = [SMALL, LARGE.within(Limit(ratio=1.3, peak=300 * MIB), "no start"), *PEERS]


def test_tables_have_the_headlines() -> None:
    """Ratios are to the peer of the same size, without start-up."""
    assert [tables.ratio(line, LINES) for line in LINES] == [0.5, 1.0, 1.0, 1.0]
    killed = replace(LARGE, who="Orbax", measured=None)
    assert tables.table([*LINES, killed]).splitlines()[2:] == [
        "| copy, 2 GB | ckpt-surgery | 4.50 | 2.25–9.00 | 1 | 301 | 1.3 × peer, 300 MiB | NO | no start |",
        "| copy, 2 GB | cp (peer) | 4.25 | 2.12–8.50 | 1 | 1 |  |  |  |",
        "| copy, 2 GB | Orbax | killed |  |  |  |  |  |  |",
    ]


# --- the whole ----------------------------------------------------------------------------------------


@pytest.mark.slow("runs a benchmark")
def test_a_case_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest case with both tools, growing sizes and a copied checkpoint."""
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(measuring, "LONG", 0.0)
    options = bench.parse(["--size", "1MB", "--runs", "1", "--scratch", str(tmp_path)])
    found = bench.run_case("scan", options)
    assert [(line.who, line.is_peer, line.size) for line in found] == [
        ("ckpt-surgery --link-mode hardlink", False, 0.001),
        ("ckpt-surgery --link-mode copy", False, 0.001),
        ("safetensors, NumPy, Orbax save", True, 0.001),
    ]
    assert all(line.measured is not None and line.measured.runs == 1 for line in found)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow("runs a benchmark")
def test_a_sparse_checkpoint_of_more_than_a_terabyte(tmp_path: Path) -> None:
    """Llama 3.1 405B in stacked layers: every marked element is in its place, on almost no disk space."""
    found = list(cases.sparse(cases.Bench(tmp_path, 10**9, (), 1)))
    apparent = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    used = machine.disk_use(tmp_path)
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "405b")
    assert apparent > 1.6e12
    assert used < 4 * MIB
    assert "14 planted elements found" in found[-1].note


# --- docs/performance.md, its pictures and the table of the README ------------------------------------

SETTING = machine.Setting("2026-11-20 08:00", "2 cores, here", 0.1, 2, "make performance SIZE=2GB")
LATER = replace(SETTING, date="2026-11-20 17:00", machine="8 cores, there", load=1.9)


def lines_of(work: str) -> list[Line]:
    """One work at two sizes: ours, and a peer that is killed at the larger one."""
    small = Line(work, "ckpt-surgery --link-mode copy", measured(0.5), 1, "GB", headline=False)
    large = replace(small, measured=measured(1.234, 78 * MIB), size=2, headline=True)
    peer = replace(small, who="a peer", measured=measured(2.5), is_peer=True)
    return [small, large, peer, replace(peer, measured=None, size=2, headline=True)]


def every_line() -> list[Line]:
    works = [work.replace(r"\d+", "4096").replace(".*", "3.0 GiB") for work in performance.SHOWN]
    return [line for work in works for line in lines_of(work)]


def test_results_are_read_and_a_work_is_taken_from_the_latest_run(tmp_path: Path) -> None:
    first = [line.within(Limit(ratio=1.3), "a note") for line in lines_of("cast")]
    again, other = lines_of("cast"), lines_of("scan")
    (tmp_path / "b.json").write_text(tables.document(SETTING, first))
    assert performance.read(tmp_path) == [(SETTING, first)]
    (tmp_path / "b.json").write_text(tables.document(SETTING, first + other))
    (tmp_path / "a.json").write_text(tables.document(LATER, again))
    assert performance.read(tmp_path) == [(SETTING, other), (LATER, again)]


def test_everything_is_written(tmp_path: Path) -> None:
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    page = tmp_path / "docs" / "performance.md"
    page.write_text("<!-- paired -->\nan earlier commit\n<!-- /paired -->\n")
    (tmp_path / "README.md").write_text("before\n\n<!-- speed -->\nold\n<!-- /speed -->\n\nafter\n")
    results = [(SETTING, every_line())]
    for _ in range(2):
        performance.write(results, tmp_path)
    readme, short = (tmp_path / "README.md").read_text(), performance.short_table(every_line())
    row = "| rename, link, 2 GB, `--link-mode copy` | 1.2 s | 78 MiB | a peer | out of memory |  |"
    assert short.splitlines()[2] == row
    assert readme.startswith("before\n\n<!-- speed -->\nMeasured 2026-11-20 on `2 cores, here`.")
    assert readme.endswith(f"{short}<!-- /speed -->\n\nafter\n")
    assert page.read_text() == performance.page(results, "an earlier commit\n")
    names = sorted(path.name for path in (tmp_path / "docs" / "pictures").iterdir())
    assert names == ["growth-size-dark.svg", "growth-size-light.svg"]
    with pytest.raises(ValueError, match="`rename many` was not measured"):
        performance.short_table([line for line in every_line() if line.work != "rename many"])
