"""Carry out a plan on a cluster of Dask: each shard is a task of it, and this process publishes the result.

The data goes from the workers to the destination. What comes back over the network is whether a shard is
done.
"""

import importlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ckpt_surgery import shard_places
from ckpt_surgery.companions import Wanted
from ckpt_surgery.core.errors import Problem, SourceError, SurgeryError, UsageError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.text import shown
from ckpt_surgery.destinations import Publication, publication
from ckpt_surgery.engine import signals
from ckpt_surgery.engine.parts import head_of, missing
from ckpt_surgery.engine.shards import shares
from ckpt_surgery.engine.tasks import Task
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.preparing import prepare
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.requests import Request, is_plan_file
from ckpt_surgery.results import Result
from ckpt_surgery.resuming import identity_of
from ckpt_surgery.saved_plans import saved_request
from ckpt_surgery.shard_jobs import Job, carried_out, joined_job, kept, opened, published, saved_plan

LAUNCHER = "dask"
SHARDS_PER_WORKER = 4
RETRIES = 3
"""How often a shard is begun again whose worker was killed."""
CONNECT_SECONDS = 30
"""Longest wait for a scheduler, at the beginning and where its connection breaks."""


class WorkersLost(SurgeryError):
    """The workers that had a shard were killed, or the cluster is gone."""


@dataclass(frozen=True)
class Cluster:
    """Where shards are carried out."""

    scheduler: str | None
    """Address of a scheduler; None: processes of this machine are started."""
    workers: int
    """Number of processes that are started without a scheduler."""


@dataclass(frozen=True)
class Outcome:
    """What a worker says of a shard."""

    nbytes: int
    failure: tuple[type[SurgeryError], tuple[Problem, ...]] | None = None
    """Kind and problems of an error, which would come again on any worker."""


def applied_on_cluster(
    saved: Request,
    cluster: Cluster,
    overwrite: bool,
    verify: Verify,
    wanted: Wanted,
    progress: Callable[[Progress], None] | None,
    on_plan: Callable[[Plan], None] | None,
) -> Result:
    """Carry out a saved plan on a cluster, and publish the result.

    Shards that an ended run of the same plan has finished are not done again. Raises SurgeryError; the parts
    are kept then.
    """
    started = time.monotonic()
    if saved.dst is None:
        raise UsageError("no destination is given", hint="Name the directory or file to write.")
    where = publication(saved.dst, saved.dst_step, saved.dst_item)
    parts = shard_places.parts_of(where)
    with signals.interruptible(), _client(cluster) as client, parts.held() as notices:
        threads = sum(client.nthreads().values())
        job = _begun(saved, SHARDS_PER_WORKER * max(1, threads), overwrite)
        if on_plan is not None:
            on_plan(job.prepared.plan)
        memory = job.prepared.memory // (cluster.workers if cluster.scheduler is None else 1)
        with kept(job):
            _work_off(client, job, saved.allow_hooks, memory, verify, progress)
            result = published(job, verify, wanted, saved.dst, started)
    return replace(result, notices=(*notices, *result.notices))


@contextmanager
def saved_for(request: Request, document: Callable[[], bytes]) -> Iterator[Request]:
    """The saved plan that a request names, or one that is made of it now, for as long as the context lasts.

    `document` makes the plan. Raises SurgeryError.
    """
    saved = saved_request(request) if is_plan_file(request.recipe) else None
    if saved is not None:
        yield saved
        return
    if request.has_trees:
        raise UsageError(
            "a source or the target is in memory, which no worker has",
            hint="Save the tree as a checkpoint, or leave out `engine`.",
        )
    with tempfile.TemporaryDirectory(prefix="ckpt-surgery-") as directory:
        path = Path(directory, "plan.json")
        path.write_bytes(document())
        made = saved_request(
            Request(str(path), dst=request.dst, memory=request.memory, allow_hooks=request.allow_hooks)
        )
        assert made is not None
        yield made


def _begun(saved: Request, count: int, overwrite: bool) -> Job:
    """The parts of an earlier run of the same plan, or new ones in place of those of another."""
    where = publication(str(saved.dst), saved.dst_step, saved.dst_item)
    parts = shard_places.parts_of(where)
    head = head_of(parts)
    if head is not None and dict(head.identity) == dict(identity_of(prepare(saved))):
        count = head.count
    elif head is not None and head.launcher == LAUNCHER:
        parts.clear()
    return joined_job(saved, count, overwrite, LAUNCHER)


# --- the cluster ------------------------------------------------------------------------------------------


@contextmanager
def _client(cluster: Cluster) -> Iterator[Any]:
    """A client of the scheduler, or of processes of this machine that end with the context.

    Raises MissingLibraryError where Dask is not installed, WorkersLost where nothing answers.
    """
    dask, distributed = _imported("dask"), _imported("distributed")
    settings = {
        "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
        "distributed.scheduler.allowed-failures": RETRIES,
        "distributed.logging": {"distributed": "critical"},
    }
    with dask.config.set(settings), _scheduler(cluster) as address:
        try:
            client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise WorkersLost(
                f"the scheduler {shown(str(cluster.scheduler))} cannot be reached ({shown(str(error))})",
                hint='Give the address that `dask scheduler` prints: `scheduler="tcp://HOST:8786"`.',
            ) from error
        try:
            yield client
        finally:
            client.close(timeout=5)


def _imported(name: str) -> Any:
    """Import a module of Dask. Raises MissingLibraryError where it is not installed."""
    with report_missing(name, f"`engine`: Dask needs the package {name}"):
        return importlib.import_module(name)


@contextmanager
def _scheduler(cluster: Cluster) -> Iterator[str]:
    """The address of a scheduler, which is started where there is none."""
    if cluster.scheduler is not None:
        yield cluster.scheduler
        return
    local = _imported("distributed").LocalCluster(
        n_workers=cluster.workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,  # the budget of the run is kept by ckpt-surgery itself
        silence_logs=50,
    )
    try:
        yield local.scheduler_address
    finally:
        local.close(timeout=10)


def _work_off(
    client: Any,
    job: Job,
    allow_hooks: bool,
    memory: int,
    verify: Verify,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Have every shard done that is not. Raises SurgeryError."""
    shares_of = shares(job.prepared.plan, job.head.count)
    left = missing(job.parts, job.head)
    total = sum(task.nbytes for tasks in shares_of for task in tasks)
    done = total - sum(task.nbytes for index in left for task in shares_of[index])
    order = sorted(left, key=lambda index: -sum(task.nbytes for task in shares_of[index]))
    work = partial(do_shard, job.where, job.head.run, allow_hooks, memory, verify)
    futures = {
        client.submit(work, index, pure=False, retries=RETRIES, key=f"shard-{index}-{job.head.run}"): index
        for index in order
    }
    try:
        for future in _imported("distributed").as_completed(list(futures), loop=client.loop):
            outcome = _outcome(future, job, shares_of[futures[future]], futures[future])
            done += outcome.nbytes
            if progress is not None:
                progress(Progress(done, total))
    finally:
        client.cancel(list(futures), force=True)


def _outcome(future: Any, job: Job, tasks: Sequence[Task], index: int) -> Outcome:
    """What became of a shard. Raises SurgeryError."""
    steps = job.prepared.plan.steps
    named = few_keys(list(dict.fromkeys(steps[task.step].leaf.key.text for task in tasks)))
    what = f"shard {index}/{job.head.count} ({named})"
    kept = "What is done is kept: run the same again to go on."
    try:
        outcome: Outcome = future.result()
    except Exception as error:
        raise WorkersLost(f"{what} was not done: {shown(_first_line(error))}", hint=kept) from error
    if outcome.failure is not None:
        kind, problems = outcome.failure
        raise kind(*problems)
    return outcome


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# --- what a worker does -----------------------------------------------------------------------------------


def do_shard(
    where: Publication, run: str, allow_hooks: bool, memory: int, verify: Verify, index: int
) -> Outcome:
    """Do one shard of the parts at a destination, in a worker of a cluster. `memory` is in bytes."""
    host = socket.gethostname()
    try:
        parts = shard_places.parts_of(where)
        head = head_of(parts)
        if head is None or head.run != run:
            raise SourceError(
                f"{shown(parts.place)}: it has no parts of this run",
                hint="The destination must be at the same path or URL on all machines.",
            )
        given: dict[str, object] = {"memory": memory, "workers": 1, "allow_hooks": allow_hooks}
        with saved_plan(where, parts, head, given) as saved:
            prepared = opened(saved).replacing(head.replaces)
        job = Job(prepared, where, parts, head)
        carried_out(job, index, verify, None)
        return Outcome(sum(task.nbytes for task in shares(prepared.plan, head.count)[index]))
    except SurgeryError as error:
        problems = tuple(replace(p, message=f"on {host}: {p.message}") for p in error.problems)
        kind = SourceError if isinstance(error, UsageError) else type(error)
        return Outcome(0, (kind, problems))
