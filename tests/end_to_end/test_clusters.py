"""Plans that a cluster of Dask carries out: processes of this machine, some of which are killed."""

import asyncio
import importlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import (
    Code,
    DestinationError,
    PlanError,
    SourceError,
    WorkersLost,
)
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.engine.parts import head_bytes, head_of, missing
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.runs import shards
from ckpt_surgery.runs.destination import Publication
from ckpt_surgery.runs.engines import dask as clusters
from tests.support.checkpoints import restored, save_pytree
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.recipes import write_recipe
from tests.support.sharded_runs import SavedRun, copy_source, entries

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def recipe(sharded: Path, tmp_path: Path) -> Path:
    return copy_source(sharded, tmp_path)


class Ending:
    """Has workers of a cluster end without a word at a task, each once: a plugin of Dask."""

    def __init__(self, tokens: Path, at: dict[str, int], every_time: bool = False):
        self.tokens = tokens
        self.at = at
        """The number of the task at which a worker ends, by its name."""
        self.every_time = every_time

    def setup(self, worker: Any) -> None:
        from ckpt_surgery.engine.worker import _Worker

        name, do = str(worker.name), _Worker.do
        left = self.at.get(name, -1)

        def counted(one: Any, task: Any, known: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1 and self._may(name):
                os.kill(os.getpid(), signal.SIGKILL)
            return do(one, task, known)

        if name in self.at:
            _Worker.do = counted  # type: ignore[method-assign]

    def _may(self, name: str) -> bool:
        """Whether it did not end before: its successor has the same name."""
        if self.every_time:
            return True
        try:
            (self.tokens / f"ended-{name}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@contextmanager
def cluster(workers: int, plugin: Any = None) -> Iterator[Any]:
    """Processes of this machine, and the address of their scheduler."""
    distributed: Any = importlib.import_module("distributed")
    made = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=50,
    )
    try:
        if plugin is not None:
            with distributed.Client(made, set_as_default=False) as client:
                client.register_plugin(plugin, name="ending")
        yield made
    finally:
        made.close(timeout=20)


def apply_on(made: Any, recipe: Path, dst: Path, **options: Any) -> Any:
    """Have a cluster, or the scheduler at an address, convert the checkpoint beside the recipe."""
    address = made if isinstance(made, str) else made.scheduler_address
    src = recipe.with_name("in")
    return ckpt_surgery.apply(recipe, src, dst=dst, engine="dask", scheduler=address, **options)


def is_what_one_machine_writes(dst: Path, recipe: Path) -> bool:
    """Also to stock Orbax."""
    alone = recipe.with_name("alone")
    ckpt_surgery.apply(recipe, recipe.with_name("in"), dst=alone)
    assert_same(restored(dst), restored(alone))
    return not ckpt_surgery.diff(alone, dst, values=True).different


@pytest.mark.slow("starts clusters of processes")
def test_two_of_four_workers_are_killed(tmp_path: Path, recipe: Path) -> None:
    dst = tmp_path / "out"
    told: list[Progress] = []
    plugin = _plugin(Ending(tmp_path, {"1": 0, "3": 1}))
    with cluster(4, plugin) as made:
        result = apply_on(made, recipe, dst, progress=told.append)
    assert sorted(path.name for path in tmp_path.glob("ended-*")) == ["ended-1", "ended-3"]
    assert is_what_one_machine_writes(dst, recipe)
    assert result.destination == str(dst)
    assert told[-1].done_bytes == told[-1].total_bytes == result.plan.costs.bytes_out
    assert entries(tmp_path) == []


def _plugin(ending: Ending) -> Any:
    """The plugin as Dask wants it. Its workers import this module by its name."""
    distributed: Any = importlib.import_module("distributed")
    return type("Plugin", (distributed.WorkerPlugin,), {"setup": lambda _, worker: ending.setup(worker)})()


@pytest.mark.slow("starts clusters of processes")
def test_a_shard_whose_workers_are_always_killed(tmp_path: Path, recipe: Path) -> None:
    plugin = _plugin(Ending(tmp_path, {"0": 0}, every_time=True))
    dask: Any = importlib.import_module("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        cluster(1, plugin) as made,
        pytest.raises(WorkersLost, match=r"shard-\d+-") as raised,
    ):
        apply_on(made, recipe, tmp_path / "out")
    assert raised.value.exit_code == 1
    assert entries(tmp_path) == [".out.ckpt-surgery-parts"]


def begun(recipe: Path, dst: Path, count: int, done: Iterable[int]) -> None:
    """Some shards of a plan that another process has begun."""
    saved = SavedRun(dst.with_name("plan.json"), str(dst))
    ckpt_surgery.plan(recipe, recipe.with_name("in"), dst=dst, out=saved.plan, memory="20MiB", workers=1)
    saved.shards(done, count)
    saved.plan.unlink()


@pytest.mark.slow("starts clusters of processes")
def test_a_run_goes_on_with_the_shards_the_memory_and_the_number_of_an_ended_one(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = tmp_path / "out"
    begun(recipe, dst, 7, [1, 4])
    done = {path: path.stat().st_mtime_ns for path in tmp_path.glob(".out.ckpt-surgery-parts/*.done.json")}
    kept: dict[Path, int] = {}
    told: list[Progress] = []

    publish = shards.publish_shards

    def publishing(job: shards.Job, *rest: Any) -> Any:
        kept.update({path: path.stat().st_mtime_ns for path in done})
        return publish(job, *rest)

    monkeypatch.setattr(shards, "publish_shards", publishing)
    with cluster(1) as made:
        apply_on(made, recipe, dst, progress=told.append)
    assert (len(done), kept) == (2, done)
    assert len(told) == 5
    assert told[-1].done_bytes == told[-1].total_bytes
    assert is_what_one_machine_writes(dst, recipe)


@pytest.mark.slow("starts clusters of processes")
def test_a_hint_about_memory_is_followed(tmp_path: Path) -> None:
    """Each thread has a share of the machine's budget, and the hint names the whole of it."""
    save_pytree(tmp_path / "in", {"a": np.arange(1 << 20, dtype=np.float32)[::-1].copy()})
    rule = "rules:\n  - match: a\n    value: x - mean(x)\n"
    recipe, dst = write_recipe(tmp_path, f"version: 1\n{rule}"), tmp_path / "out"
    with cluster(2) as made:
        with pytest.raises(PlanError) as raised:
            apply_on(made, recipe, dst, memory="1KiB")
        [problem] = raised.value.problems
        assert (problem.code, problem.hint is None) == (Code.BUDGET, False)
        [budget] = re.findall('memory="(.*?)"', str(problem.hint))
        apply_on(made, recipe, dst, memory=budget)
    assert ckpt_surgery.verify(dst).flaws == ()


@pytest.mark.slow("starts clusters of processes")
def test_another_run_commits_meanwhile(tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its shards are written then or not, the late run says so, and touches nothing."""
    dst = tmp_path / "out"
    begun(recipe, dst, 2, [0])
    work_off = clusters._write_shards

    def late(client: Any, job: shards.Job, *rest: Any) -> None:
        for index in missing(job.parts, job.head):
            shards.write_shard(job, index, Verify.FAST)
        assert applying.commit(dst) is not None
        work_off(client, job, *rest)

    monkeypatch.setattr(clusters, "_write_shards", late)
    with cluster(1) as made, pytest.raises(DestinationError, match="published") as raised:
        apply_on(made, recipe, dst)
    assert raised.value.exit_code == 4
    assert entries(tmp_path) == []
    assert ckpt_surgery.verify(dst, mode="full").flaws == ()


def test_a_worker_names_its_host_where_it_sees_other_files(tmp_path: Path, recipe: Path) -> None:
    dst = tmp_path / "out"
    begun(recipe, dst, 2, [0])
    where = Publication(str(dst), False)
    head = head_of(shards.parts_of(where))
    assert head is not None
    for move in (tmp_path / "in", tmp_path / ".out.ckpt-surgery-parts"):
        move.rename(tmp_path / "elsewhere")
        failure = clusters.write_on_worker(where, head, False, Verify.FAST, 1)
        (tmp_path / "elsewhere").rename(move)
        assert failure is not None
        kind, [problem, *_] = failure
        assert kind is SourceError
        assert os.uname().nodename in problem.message
        assert str(move) in problem.message
    other = replace(head, identity={**head.identity, "plan": "of other mounts"})
    (tmp_path / ".out.ckpt-surgery-parts/head.json").write_bytes(head_bytes(other))
    refused = clusters.write_on_worker(where, other, False, Verify.FAST, 1)
    assert refused is not None
    assert refused[0].exit_code == 2
    (tmp_path / ".out.ckpt-surgery-parts/head.json").write_bytes(head_bytes(head))
    assert clusters.write_on_worker(where, head, False, Verify.FAST, 1) is None


@pytest.mark.slow("starts clusters of processes")
def test_a_cluster_without_a_scheduler_or_without_workers(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(clusters, "WORKER_SECONDS", 1)
    with scheduler() as (_, address):
        for given in ("tcp://127.0.0.1:9", "nonsense", "foo://127.0.0.1:1", address):
            done = run(
                *("apply", recipe, tmp_path / "in", tmp_path / "out", "--engine", "dask"),
                *("--scheduler", given),
            )
            assert done.exit_code == 1, done.output
            assert f"no worker can be reached through {given}" in done.output
            assert "Traceback" not in done.output
    assert entries(tmp_path) == []


SCHEDULER = """
import asyncio
from distributed import Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

asyncio.run(main())
"""


@contextmanager
def scheduler() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process without workers, and its address."""
    command = [sys.executable, "-c", SCHEDULER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.slow("starts clusters of processes")
@pytest.mark.parametrize("gone", ["scheduler", "workers"])
def test_a_cluster_that_dies(
    gone: str,
    tmp_path: Path,
    recipe: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 2)
    finished = clusters._finished_shards
    with scheduler() as (process, address):
        worker = multiprocessing.get_context("spawn").Process(target=_worker, args=(address,))
        worker.start()

        def killing(*arguments: Any) -> Any:
            monkeypatch.setattr(clusters, "WORKER_SECONDS", 1)
            (worker if gone == "workers" else process).kill()
            return finished(*arguments)

        monkeypatch.setattr(clusters, "_finished_shards", killing)
        with pytest.raises(WorkersLost) as raised:
            apply_on(address, recipe, tmp_path / "out")
        worker.kill()
        worker.join()
    assert raised.value.exit_code == 1
    assert len(raised.value.problems) == 1
    assert entries(tmp_path) == [".out.ckpt-surgery-parts"]
    assert "Traceback" not in capfd.readouterr().err


def _worker(address: str) -> None:
    """Be a worker that takes shards and never ends one."""
    distributed: Any = importlib.import_module("distributed")

    async def main() -> None:
        async with distributed.Worker(address, nthreads=1, dashboard=False) as worker:
            await worker.finished()

    clusters.write_on_worker = lambda *_: threading.Event().wait()  # type: ignore[assignment]
    asyncio.run(main())
