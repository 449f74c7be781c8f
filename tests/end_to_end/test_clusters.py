"""Plans that a cluster of Dask carries out: processes of this machine, some of which are killed."""

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery import clusters, shard_jobs, shard_places, sharded
from ckpt_surgery.core.errors import DataError, Interrupted, SourceError, SurgeryError, UsageError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.destinations import Publication
from ckpt_surgery.engine.parts import head_of, missing
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.requests import Request
from ckpt_surgery.saved_plans import saved_request
from tests.support.checkpoints import restored, save_pytree
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.recipes import write_recipe

ARRAYS = {
    **{f"layer_{i}": np.arange(i, i + 3000, dtype=np.float32).reshape(50, 60) for i in range(30)},
    "ids": np.arange(100),
}
RECIPE = """\
version: 1
rules:
  - match: layer_(\\d+)
    to: blocks/\\1/w
    value: cast(x * 2, "bfloat16")
"""
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    save_pytree(tmp_path / "in", ARRAYS)
    return write_recipe(tmp_path, RECIPE)


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


def entries(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if "ckpt-surgery" in name)


@pytest.mark.slow
def test_two_of_four_workers_are_killed(tmp_path: Path, recipe: Path) -> None:
    alone, dst = tmp_path / "alone", tmp_path / "out"
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=alone)
    told: list[Progress] = []
    plugin = _plugin(Ending(tmp_path, {"1": 0, "3": 1}))
    with cluster(4, plugin) as made:
        result = ckpt_surgery.apply(
            recipe,
            tmp_path / "in",
            dst=dst,
            engine="dask",
            scheduler=made.scheduler_address,
            progress=told.append,
        )
    assert sorted(path.name for path in tmp_path.glob("ended-*")) == ["ended-1", "ended-3"]
    assert not ckpt_surgery.diff(alone, dst, values=True).different
    assert_same(restored(dst), restored(alone))
    assert result.destination == str(dst)
    assert told[-1].done_bytes == told[-1].total_bytes == result.plan.costs.bytes_out
    assert entries(tmp_path) == []


def _plugin(ending: Ending) -> Any:
    """The plugin as Dask wants it. Its workers import this module by its name."""
    distributed: Any = importlib.import_module("distributed")
    return type("Plugin", (distributed.WorkerPlugin,), {"setup": lambda _, worker: ending.setup(worker)})()


def test_processes_of_this_machine(tmp_path: Path, recipe: Path) -> None:
    done = run("apply", recipe, tmp_path / "in", tmp_path / "out", "--engine", "dask", "--workers", "2")
    assert done.exit_code == 0, done.output
    assert "done" in done.output
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "alone")
    assert not ckpt_surgery.diff(tmp_path / "alone", tmp_path / "out", values=True).different
    assert entries(tmp_path) == []


@pytest.mark.slow
def test_a_shard_whose_workers_are_always_killed(tmp_path: Path, recipe: Path) -> None:
    dst = tmp_path / "out"
    plugin = _plugin(Ending(tmp_path, {"0": 0}, every_time=True))
    dask: Any = importlib.import_module("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        cluster(1, plugin) as made,
        pytest.raises(SurgeryError, match=r"shard \d+/4 .*blocks/") as raised,
    ):
        ckpt_surgery.apply(recipe, tmp_path / "in", dst=dst, engine="dask", scheduler=made.scheduler_address)
    assert raised.value.exit_code == 1
    assert not dst.exists()


def test_what_is_wrong_with_values_is_told_once_and_with_the_host(tmp_path: Path) -> None:
    save_pytree(tmp_path / "in", {"a": np.full((4,), 1e30, np.float32), "b": np.ones(3)})
    rule = "rules:\n  - match: a\n    value: cast(x, 'float16')\n"
    recipe = write_recipe(tmp_path, f"version: 1\n{rule}")
    with cluster(1) as made, pytest.raises(DataError, match=r"on .*`a`|`a`.*") as raised:
        ckpt_surgery.apply(
            recipe, tmp_path / "in", dst=tmp_path / "out", engine="dask", scheduler=made.scheduler_address
        )
    assert raised.value.exit_code == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_goes_on_from_what_shards_of_an_ended_one_have_done(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = tmp_path / "out"
    begun: list[int] = []

    def here(client: Any, job: Any, *rest: Any) -> None:
        """In place of the cluster: this process does all shards but three, and then ends."""
        for index in missing(job.parts, job.head):
            if len(begun) == job.head.count - 3:
                raise Interrupted(signal.SIGTERM, "stopped by SIGTERM")
            begun.append(index)
            shard_jobs.carried_out(job, index, Verify.FAST, None)

    with cluster(2) as made:
        run_it: Callable[[], Any] = lambda: ckpt_surgery.apply(  # noqa: E731
            recipe, tmp_path / "in", dst=dst, engine="dask", scheduler=made.scheduler_address
        )
        with monkeypatch.context() as patch:
            patch.setattr(clusters, "_work_off", here)
            with pytest.raises(Interrupted) as raised:
                run_it()
        *_, told = raised.value.problems
        assert told.message == f"5 of 8 shards are done, and kept in {tmp_path}/.out.ckpt-surgery-parts"
        assert told.hint == "Run the same again: it goes on with what is not done."
        assert not dst.exists()
        done = sorted(tmp_path.glob(".out.ckpt-surgery-parts/*.done.json"))
        times = {path: path.stat().st_mtime_ns for path in done}
        assert len(times) == 5
        kept: dict[Path, int] = {}

        def publishing(job: Any, *rest: Any) -> Any:
            kept.update({path: path.stat().st_mtime_ns for path in done})
            return published(job, *rest)

        published = shard_jobs.published
        monkeypatch.setattr(clusters, "published", publishing)
        run_it()
    assert kept == times
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "alone")
    assert not ckpt_surgery.diff(tmp_path / "alone", dst, values=True).different


def test_parts_of_another_plan_are_cleared(tmp_path: Path, recipe: Path) -> None:
    dst = tmp_path / "out"
    with cluster(1) as made:
        options: dict[str, Any] = {"engine": "dask", "scheduler": made.scheduler_address}
        file = tmp_path / "plan.json"
        ckpt_surgery.plan(None, tmp_path / "in", dst=dst, out=file)
        saved = saved_request(Request(str(file), dst=str(dst)))
        assert saved is not None
        shard_jobs.joined_job(saved, 4, False, clusters.LAUNCHER)
        ckpt_surgery.apply(recipe, tmp_path / "in", dst=dst, **options)
        ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "alone")
        assert not ckpt_surgery.diff(tmp_path / "alone", dst, values=True).different
        # Those of shards that a person has started are not.
        ckpt_surgery.plan(None, tmp_path / "in", dst=tmp_path / "two", out=file)
        sharded.apply_shard(file, shard="0/4")
        with pytest.raises(UsageError, match="parts of another plan"):
            ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "two", **options)
    assert entries(tmp_path) == [".two.ckpt-surgery-parts"]


def test_a_worker_that_does_not_see_the_parts_names_its_host(tmp_path: Path) -> None:
    where = Publication(str(tmp_path / "out"), False)
    outcome = clusters.do_shard(where, "1234", False, 1 << 20, Verify.FAST, 0)
    assert outcome.failure is not None
    kind, [problem] = outcome.failure
    assert kind is SourceError
    assert os.uname().nodename in problem.message
    assert str(tmp_path) in problem.message


def test_a_worker_that_does_not_see_the_source_names_its_host(tmp_path: Path, recipe: Path) -> None:
    dst, file = tmp_path / "out", tmp_path / "plan.json"
    ckpt_surgery.plan(recipe, tmp_path / "in", dst=dst, out=file)
    sharded.apply_shard(file, shard="0/2")
    head = head_of(shard_places.parts_of(Publication(str(dst), False)))
    assert head is not None
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    where = Publication(str(dst), False)
    outcome = clusters.do_shard(where, head.run, False, 1 << 20, Verify.FAST, 1)
    assert outcome.failure is not None
    kind, problems = outcome.failure
    assert kind.exit_code == 1
    assert os.uname().nodename in problems[0].message
    assert str(tmp_path / "in") in problems[0].message


def test_a_scheduler_that_cannot_be_reached(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    done = run(
        *("apply", recipe, tmp_path / "in", tmp_path / "out", "--engine", "dask"),
        *("--scheduler", "tcp://127.0.0.1:9"),
    )
    assert done.exit_code == 1
    assert "cannot be reached" in done.output
    assert entries(tmp_path) == []
    for wrong in ("nonsense", "foo://127.0.0.1:1"):
        refused = run(
            "apply", recipe, tmp_path / "in", tmp_path / "out", "--engine", "dask", "--scheduler", wrong
        )
        assert refused.exit_code == 1, refused.output
        assert "Traceback" not in refused.output


SCHEDULER = """
import asyncio, sys
from distributed import Nanny, Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_scheduler_that_dies(tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 2)
    process = subprocess.Popen([sys.executable, "-c", SCHEDULER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    submitted = threading.Event()
    client_of = clusters._client

    @contextmanager
    def watched(cluster: Any) -> Iterator[Any]:
        with client_of(cluster) as client:
            submit = client.submit

            def submitting(*arguments: Any, **options: Any) -> Any:
                submitted.set()
                return submit(*arguments, **options)

            client.submit = submitting
            yield client

    monkeypatch.setattr(clusters, "_client", watched)

    def killing() -> None:
        submitted.wait()
        process.kill()

    threading.Thread(target=killing, daemon=True).start()
    with pytest.raises(SurgeryError) as raised:  # there are no workers, so no shard is ever done
        ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "out", engine="dask", scheduler=address)
    process.wait()
    process.stdout.close()
    assert raised.value.exit_code == 1
    assert not (tmp_path / "out").exists()
    assert entries(tmp_path) == [".out.ckpt-surgery-parts"]


def test_what_no_cluster_can_do_is_refused(tmp_path: Path, recipe: Path) -> None:
    for options, why in (
        ({"engine": "spark"}, "not one of: local, dask"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "for the engine `dask`"),
    ):
        with pytest.raises(UsageError, match=why):
            ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "out", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="in memory"):
        ckpt_surgery.apply(recipe, dict(ARRAYS), dst=tmp_path / "out", engine="dask")
    assert entries(tmp_path) == []
