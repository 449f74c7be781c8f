"""The benchmarks: every tool does the same work, on inputs as they are described; and their tables."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors import safe_open

import ckpt_surgery
from benchmarks import bench, cases, checkpoints, machine, peers, planted, restoring, tables
from benchmarks import measure as measuring
from benchmarks.llama import (
    LLAMA_8B,
    LLAMA_405B,
    Llama,
    files,
    plant,
    plantings,
    shapes,
    shrunken,
    write_sparse,
)
from benchmarks.measure import Measured, Run, measure, measure_inside, run_once, summary, was_killed
from benchmarks.tables import Limit, Line
from tests.support.checkpoints import quiet, restored_leaves
from tests.support.comparing import assert_same

KEYTABLE = Path(__file__).parent / "data" / "keytables" / "llama3.1-8b.json"
NARROW = Llama(layers=11, heads=4, kv_heads=2, head_dim=6, embed=10, mlp=14, vocab=33, shards=3)
MIB = 2**20


def settings(model: Llama) -> list[str]:
    return [word for word in model.settings() if word != "--set"]


def leaves_of(path: Path) -> dict[str, Any]:
    with quiet(), ocp.PyTreeCheckpointer() as checkpointer:
        return restored_leaves(checkpointer.restore(path))


def built(kind: str, path: Path, size: int, seed: int = 0) -> Path:
    with quiet():
        checkpoints.build(kind, path, size, seed)
    return path


def by_peer(work: str, tmp_path: Path, *sources: Path, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    with quiet():
        peer: Callable[..., None] = peers.WORKS[work]
        peer(*map(str, sources), str(tmp_path / "peer"), *arguments)
    return leaves_of(tmp_path / "peer")


def by_tool(recipe: str, tmp_path: Path, *sources: Path, **options: Any) -> dict[str, Any]:
    if not recipe.startswith("@"):
        (tmp_path / "recipe.yaml").write_text(recipe)
        recipe = str(tmp_path / "recipe.yaml")
    ckpt_surgery.apply(recipe, *sources, dst=tmp_path / "ours", **options)
    return leaves_of(tmp_path / "ours")


# --- inputs -------------------------------------------------------------------------------------------


def test_the_names_and_shapes_are_those_of_the_published_model() -> None:
    published = json.loads(KEYTABLE.read_text())["disk"]
    assert list(shapes(LLAMA_8B).items()) == [(name, tuple(shape)) for name, shape in published.items()]


def test_405b_has_405_billion_parameters() -> None:
    assert sum(int(np.prod(shape)) for shape in shapes(LLAMA_405B).values()) == 405_853_388_800
    assert len(files(LLAMA_405B, "F32")) == 191


def test_a_shrunken_model_has_about_the_bytes_and_the_same_layers() -> None:
    model = shrunken(LLAMA_8B, 10**9, "BF16")
    assert (model.layers, model.heads, model.kv_heads, model.head_dim) == (32, 32, 8, 32)
    assert (model.embed, model.mlp, model.vocab) == (1024, 3584, 32064)
    assert sum(file.nbytes for file in files(model, "BF16")) == pytest.approx(10**9, rel=0.02)


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_the_headers_are_read_by_safetensors(dtype: str, tmp_path: Path) -> None:
    write_sparse(tmp_path / "model", files(NARROW, dtype))
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    for name in sorted(set(index.values())):
        with safe_open(tmp_path / "model" / name, "np") as opened:
            for key in opened.keys():  # noqa: SIM118  a method of its own, not a mapping's
                assert index[key] == name
                assert opened.get_slice(key).get_dtype() == dtype
                found[key] = tuple(opened.get_slice(key).get_shape())
    assert found == shapes(NARROW)
    assert len(set(index.values())) == 3


def test_what_is_planted_is_found_where_the_recipe_puts_it(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model", files(NARROW, "F32"))
    plant(tmp_path / "model", NARROW, "F32")
    found = by_tool("@hf-llama3-to-jax", tmp_path, tmp_path / "model", set=settings(NARROW))
    assert planted.main(tmp_path / "ours", NARROW) == 14
    assert sum(int(np.count_nonzero(array)) for array in found.values()) == 14
    assert {p.name for p in plantings(NARROW)} > {"model.layers.10.mlp.down_proj.weight"}


def test_what_is_not_there_is_missed(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model", files(NARROW, "F32"))
    by_tool("@hf-llama3-to-jax", tmp_path, tmp_path / "model", set=settings(NARROW))
    with pytest.raises(ValueError, match="not where it belongs"):
        planted.main(tmp_path / "ours", NARROW)


def test_many_leaves(tmp_path: Path) -> None:
    found = leaves_of(built("leaves", tmp_path / "many", 19))
    assert len(found) == 19
    assert {
        "params/layer_0/attention/query",
        "params/layer_1/norm2/scale",
        "params/layer_2/attention/value",
    } <= {*found}
    assert found["params/layer_2/attention/value"].tolist() == [[18.0] * 4] * 4


def test_matrices_differ_by_seed_and_have_the_size(tmp_path: Path) -> None:
    one = leaves_of(built("matrices", tmp_path / "one", 40_000))
    other = leaves_of(built("matrices", tmp_path / "other", 40_000, 1))
    assert {a.shape for a in one.values()} == {(32, 32)}
    assert sum(a.nbytes for a in one.values()) == 36_864
    assert not np.array_equal(one["params/layer_0/kernel"], other["params/layer_0/kernel"])


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no kind of checkpoint is called torch"):
        checkpoints.build("torch", tmp_path / "x", 1)


# --- peers do the tool's work -------------------------------------------------------------------------


def test_rename(tmp_path: Path) -> None:
    source = built("matrices", tmp_path / "source", 40_000)
    ours = by_tool(cases.RENAME, tmp_path, source)
    assert "model/block_0/kernel" in ours
    assert_same(ours, by_peer("renamed", tmp_path, source))


def test_cast(tmp_path: Path) -> None:
    source = built("matrices", tmp_path / "source", 40_000)
    assert_same(by_tool("@cast", tmp_path, source), by_peer("cast", tmp_path, source))


def test_average(tmp_path: Path) -> None:
    sources = [built("matrices", tmp_path / name, 40_000, seed) for seed, name in enumerate(["one", "other"])]
    assert_same(by_tool("@average", tmp_path, *sources), by_peer("averaged", tmp_path, *sources))


def test_scanned_layers(tmp_path: Path) -> None:
    source, model = built("llama", tmp_path / "llama", 2 * MIB), shrunken(LLAMA_8B, 2 * MIB, "BF16")
    sizes = tuple(str(n) for n in (model.layers, model.heads, model.kv_heads, model.head_dim))
    ours = by_tool("@hf-llama3-to-jax", tmp_path, source, set=settings(model))
    assert ours["params/decoder/layers/mlp/wo/kernel"].shape == (32, model.mlp, model.embed)
    assert_same(ours, by_peer("scanned", tmp_path, source, arguments=sizes))


@pytest.mark.parametrize(
    ("kind", "work", "recipe", "shape"),
    [
        ("tensor", "transposed", cases.TRANSPOSE, (101, 101)),
        ("parts", "stacked", cases.STACK, (8, 35, 35)),
    ],
)
def test_budgeted_work(kind: str, work: str, recipe: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    source = built(kind, tmp_path / "one.safetensors", 41_000)
    ours = by_tool(recipe, tmp_path, source)
    assert ours["w"].shape == shape
    assert_same(ours, by_peer(work, tmp_path, source))


def test_copy_and_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = built("leaves", tmp_path / "source", 3)
    assert_same(by_peer("copied", tmp_path, source), leaves_of(source))
    with quiet():
        peers.metadata(str(source))
    assert int(capsys.readouterr().out) > 100


@pytest.mark.parametrize("who", ["ours", "ours memory=2MiB", "transforms", "transformations"])
def test_restoring_into_a_state(who: str, tmp_path: Path) -> None:
    """Every layer, transposed and cast, is in its place, on the devices of the state."""
    with quiet():
        restoring.write(str(tmp_path / "layers"), "1_000_000")
        target = restoring.state(str(tmp_path / "layers"))
        work, *options = who.split()
        found = restoring.WHO[work](str(tmp_path / "layers"), target, *options)
    layers = leaves_of(tmp_path / "layers")
    assert len(layers) == 24 * 6
    assert jax.tree.map(lambda a: a.sharding, found) == jax.tree.map(lambda t: t.sharding, target)
    assert all(len(array.addressable_shards) == 8 for array in jax.tree.leaves(found))
    for key, array in restored_leaves(found).items():
        part = key.removeprefix("params/layers/")
        wanted = np.stack([layers[f"params/layers_{i}/{part}"].T.astype(array.dtype) for i in range(24)])
        assert array.dtype == "bfloat16"
        np.testing.assert_array_equal(np.asarray(array), wanted)


@pytest.mark.parametrize(("nbytes", "wanted"), [(10**9, 928), (10**6, 24), (1, 8)])
def test_the_layers_to_restore_have_about_the_bytes(nbytes: int, wanted: int) -> None:
    assert restoring.width(nbytes) == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="memory and reads are counted as Linux does")
def test_what_restoring_takes_is_reported(tmp_path: Path) -> None:
    with quiet():
        restoring.write(str(tmp_path / "layers"), "1_000_000")
        told = restoring.report("ours", str(tmp_path / "layers"))
    files = [path.stat().st_size for path in (tmp_path / "layers").rglob("*") if path.is_file()]
    assert told["stored"] == sum(files)
    assert told["result"] == 24 * 12 * 24**2 * 2
    assert told["read"] >= 24 * 12 * 24**2 * 4 * 0.9  # float32 of random numbers is hardly compressed


def test_the_twenty_rules_take_every_leaf(tmp_path: Path) -> None:
    source = built("leaves", tmp_path / "source", 16)
    assert cases.TWENTY.count("match:") == 20
    assert all(key.startswith("model/") for key in by_tool(cases.TWENTY, tmp_path, source))


# --- measuring ----------------------------------------------------------------------------------------


def in_a_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout


def test_peak_memory_is_that_of_the_process() -> None:
    """Measured from a small process, as in `make bench`: a child starts with the peak of its parent."""
    code = (
        "import sys; from benchmarks.measure import run_once\n"
        f"for code in ('pass', 'x = bytearray({200 * MIB})'):\n"
        "    print(run_once([sys.executable, '-c', code]).peak)"
    )
    small, large = map(int, in_a_fresh_interpreter(code).split())
    assert small < 40 * MIB
    assert 190 * MIB < large - small < 210 * MIB


def test_what_measures_is_small_itself() -> None:
    code = "import sys, benchmarks.bench; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = in_a_fresh_interpreter(code).split()
    assert "benchmarks" in loaded
    assert not {"numpy", "jax", "ckpt_surgery", "tensorstore", "safetensors"} & {*loaded}


def test_a_command_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_once([sys.executable, "-c", "raise SystemExit('no such thing')"])
    assert capfd.readouterr().err == "no such thing\n"
    assert not was_killed(caught.value)


def test_a_command_that_was_killed_is_told_apart() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_once([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert was_killed(caught.value)


@pytest.mark.parametrize(
    ("long", "enough", "calls", "counted"),
    [
        (1e9, 1e9, 4, 3),  # a warm-up and three runs
        (0.0, 1e9, 3, 3),  # the first took long: it counts
        (0.0, 0.0, 1, 1),  # one long run is enough
        (1e9, 0.0, 2, 1),  # one run at least
    ],
)
def test_how_often_a_command_runs(
    long: float, enough: float, calls: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "LONG", long)
    monkeypatch.setattr(measuring, "ENOUGH", enough)
    monkeypatch.setattr(os, "sync", lambda: None)
    before: list[int] = []
    assert measure([sys.executable, "-c", "pass"], 3, lambda: before.append(1)).runs == counted
    assert len(before) == calls


def test_what_a_command_says_of_itself() -> None:
    code = "import json; print('first'); print(json.dumps({'seconds': 2.5, 'peak': 7, 'read': 3}))"
    found, told = measure_inside([sys.executable, "-c", code], 2)
    assert found == Measured(2.5, 2.5, 2.5, 7, 2)
    assert told == [{"seconds": 2.5, "peak": 7, "read": 3}] * 3


def told(read: int, digest: str = "0") -> list[dict[str, Any]]:
    return [
        {
            "seconds": 1.0,
            "processor": 1.5,
            "peak": 1,
            "read": read,
            "stored": 100,
            "result": 50,
            "digest": digest,
        }
    ]


@pytest.mark.parametrize(
    ("transforms", "transformations", "ratio"),
    [(8.0, 5.0, "0.80 and 0.50"), (5.0, 8.0, "0.80 and 0.50")],  # to the faster of the peers first
)
def test_the_case_of_restoring(
    transforms: float, transformations: float, ratio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"ours": 4.0, "transforms": transforms, "transformations": transformations}
    monkeypatch.setattr(subprocess, "run", lambda command, check: None)
    monkeypatch.setattr(
        cases, "measure_inside", lambda command, runs: (measured(seconds[command[3]]), told(read=104))
    )
    lines = list(cases.restore(cases.Bench(tmp_path, 10**9, (), 1)))
    assert [line.is_peer for line in lines] == [False, False, True, True]
    assert tables.ratio(lines[0], lines) == 0.8
    assert lines[0].note == (
        f"{ratio} × peers; 1.5 s of processor time; reads 1.04 × what is stored; peak is above the start"
    )
    assert lines[0].limit == Limit(ratio=0.8, peak=50 + (2048 + 250) * MIB)
    assert lines[1].limit == Limit(peak=50 + (256 + 250) * MIB)


def test_restoring_refuses_results_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, check: None)
    monkeypatch.setattr(
        cases, "measure_inside", lambda command, runs: (measured(1.0), told(1, digest=command[3]))
    )
    with pytest.raises(ValueError, match="the results differ"):
        list(cases.restore(cases.Bench(tmp_path, 10**9, (), 1)))


def test_summary() -> None:
    assert summary([Run(3.0, 10), Run(1.0, 30), Run(1.5, 20)]) == Measured(1.5, 1.0, 3.0, 30, 3)


def test_files_with_two_names_use_the_disk_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(MIB))
    os.link(tmp_path / "a", tmp_path / "b")
    with open(tmp_path / "hole", "wb") as stream:
        stream.truncate(2**40)
    assert MIB <= machine.disk_use(tmp_path) < MIB + 2**16


def test_the_machine_is_told_without_its_name(tmp_path: Path) -> None:
    told = machine.machine(tmp_path)
    assert f"{os.cpu_count()} cores" in told
    assert all(f"{name} " in told for name in ("Python", *machine.LIBRARIES))
    assert os.uname().nodename not in told


def test_the_innermost_mount_counts(tmp_path: Path) -> None:
    inner = tmp_path.resolve() / "inner"
    inner.mkdir()
    (tmp_path / "mounts").write_text(f"a / ext4 rw 0 0\nb {inner} tmpfs rw 0 0\nc /elsewhere xfs rw 0 0\n")
    mounts = str(tmp_path / "mounts")
    assert machine.file_system(inner, mounts) == "tmpfs"
    assert machine.file_system(tmp_path, mounts) == "ext4"


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


def test_ratios_are_to_the_peer_of_the_same_size_without_start_up() -> None:
    assert [tables.ratio(line, LINES) for line in LINES] == [0.5, 1.0, 1.0, 1.0]
    assert tables.ratio(SMALL, [SMALL]) is None
    assert tables.ratio(SMALL, [SMALL, replace(PEERS[0], measured=None)]) is None


@pytest.mark.parametrize(
    ("limit", "found", "wanted"),
    [
        (Limit(), 1.0, None),
        (Limit(seconds=1.5), None, True),
        (Limit(seconds=1.4), None, False),
        (Limit(peak=90 * MIB), None, True),
        (Limit(peak=89 * MIB), None, False),
        (Limit(ratio=1.3), 1.3, True),
        (Limit(ratio=1.3), 1.31, False),
        (Limit(ratio=1.3), None, None),  # the peer was killed
        (Limit(seconds=9, ratio=1.3, peak=89 * MIB), 1.0, False),
    ],
)
def test_limits(limit: Limit, found: float | None, wanted: bool | None) -> None:
    assert tables.kept(SMALL.within(limit), found) is wanted


def test_a_command_that_was_killed_keeps_no_limit() -> None:
    assert tables.kept(replace(SMALL, measured=None, limit=Limit(seconds=1)), None) is False


def test_the_table_has_the_headlines() -> None:
    killed = replace(LARGE, who="Orbax", measured=None)
    assert tables.table([*LINES, killed]).splitlines() == [
        "| work | who | seconds | min–max | × peer | peak MiB | limit | kept | note |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
        "| copy, 2 GB | ckpt-surgery | 4.50 | 2.25–9.00 | 1 | 301 | 1.3 × peer, 300 MiB | NO | no start |",
        "| copy, 2 GB | cp (peer) | 4.25 | 2.12–8.50 | 1 | 1 |  |  |  |",
        "| copy, 2 GB | Orbax | killed |  |  |  |  |  |  |",
    ]


def test_growth_has_what_was_measured_at_two_sizes() -> None:
    once = replace(SMALL, who="once")
    assert tables.growth([*LINES, once], "GB").splitlines() == [
        "| work | who | 1 GB | 2 GB |",
        "| --- | --- | ---: | ---: |",
        "| copy | ckpt-surgery | 1.50 | 4.50 |",
        "| copy | cp | 2.25 | 4.25 |",
    ]
    assert tables.growth(LINES, "leaves") == ""


def test_a_size_that_one_of_them_was_not_measured_at_stays_empty() -> None:
    more = [*LINES, replace(SMALL, size=4000)]
    assert tables.growth(more, "GB").splitlines()[2:] == [
        "| copy | ckpt-surgery | 1.50 | 4.50 | 1.50 |",
        "| copy | cp | 2.25 | 4.25 |  |",
    ]


def test_the_report_names_the_machine_first() -> None:
    told = tables.report("2 cores", LINES)
    assert told.startswith("2 cores\n\n| work |")
    assert "### Seconds by size" in told
    assert "### Seconds by number of leaves" not in told


def test_the_document_has_everything() -> None:
    setting = machine.Setting("2026-11-26", "2 cores", 0.1, 2, "make performance")
    found = json.loads(tables.document(setting, LINES))
    assert (found["machine"], found["date"], found["load"]) == ("2 cores", "2026-11-26", 0.1)
    assert found["lines"][1]["ratio"] == 1.0
    assert found["lines"][1]["kept"] is False
    assert found["lines"][0]["measured"] == {
        "seconds": 1.5, "least": 0.75, "most": 3.0, "peak": 90 * MIB, "runs": 3, "processor": 0.0
    }  # fmt: skip


# --- the whole ----------------------------------------------------------------------------------------


def test_options() -> None:
    options = bench.parse(["--size", "512MiB", "--leaves", "300,100", "--only", "cast", "--only", "scan"])
    assert (options.size, options.leaves, options.only) == (512 * MIB, (100, 300), ["cast", "scan"])
    assert bench.parse([]).size == 10**9
    assert bench.parse_size("8GB") == 8 * 10**9
    with pytest.raises(argparse.ArgumentTypeError, match="`8` is no size such as 8GB or 512MiB"):
        bench.parse_size("8")


@pytest.mark.parametrize(
    ("nbytes", "wanted"),
    [
        (10**9, [250_000_000, 500_000_000, 10**9]),
        (50_000_000, [50_000_000]),
        (3 * 10**8, [250_000_000, 3 * 10**8]),
    ],
)
def test_sizes_double_up_to_what_was_asked_for(nbytes: int, wanted: list[int], tmp_path: Path) -> None:
    assert cases.Bench(tmp_path, nbytes, (), 1).sizes() == wanted


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


@pytest.mark.slow
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
