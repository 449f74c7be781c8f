"""Run a plan on a Dask cluster: each shard is a task, and this process publishes the result.

Dask decides which worker writes which shard; only notes about shards pass the scheduler.
"""

import asyncio
import contextlib
import functools
import importlib
import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ckpt_surgery.core import errors
from ckpt_surgery.core.errors import (
    Code,
    PlanError,
    Problem,
    SourceError,
    SurgeryError,
    UsageError,
    WorkersLost,
)
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.parts import Head, head_of, missing
from ckpt_surgery.engine.tasks import shares
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.planner.prepared import digest_of
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.runs import shards
from ckpt_surgery.runs.destination import Publication, place_of
from ckpt_surgery.runs.run import Result, RunOptions
from ckpt_surgery.runs.sidecars import find_sidecars
from ckpt_surgery.system import signals
from ckpt_surgery.system.resources import default_memory, default_workers

SHARDS_PER_THREAD = 4
CONNECT_SECONDS = 20
"""Longest wait for a response of the scheduler, at the start and after its connection broke."""
WORKER_SECONDS = 60
"""Longest wait for a worker, at the start and after all were lost."""
POLL = 0.2
"""Seconds between two polls of the shards."""
REACH = 'Start workers, and give the address that `dask scheduler` prints: `scheduler="tcp://HOST:8786"`.'
QUIET = dict.fromkeys(("distributed", "distributed.client", "tornado.application"), "critical")
"""Loggers that print a traceback for a broken connection, which our error reports in a sentence."""

Failure = tuple[type[SurgeryError], tuple[Problem, ...]]
"""Type and problems of an error, returned as a value: Dask retries what is raised on other workers."""


def run_on_cluster(request: Request, options: RunOptions) -> Result:
    """Write the shards of a plan on a cluster, and publish the result.

    Without `options.scheduler`, `workers` processes of this machine are started. Every thread of a machine
    gets a share of the budget, for which the plan is cut. What an ended run of the same request has left is
    not done again, and decides the number of shards and the share. Raises SurgeryError, and keeps the parts.
    """
    started, where = time.monotonic(), place_of(request)
    memory, workers = request.memory or default_memory(), request.workers or default_workers()
    with signals.interruptible(), _client(options.scheduler, workers) as client:
        threads: Counter[str] = Counter()
        for address, number in client.nthreads().items():
            threads[address.rpartition(":")[0]] += number
        head = head_of(shards.parts_of(where))
        most = max(threads.values())
        share = memory // most if head is None else head.memory
        count = SHARDS_PER_THREAD * threads.total() if head is None else head.count
        of_thread = replace(request, memory=share, workers=1)
        try:
            job = shards.join_or_start_job(of_thread, count, options.overwrite)
        except PlanError as error:
            raise type(error)(*(_for_machine(problem, most) for problem in error.problems)) from error
        if options.on_plan is not None:
            options.on_plan(job.prepared.plan)
        with shards.report_parts(job):
            _write_shards(client, job, request.allow_hooks, options)
            whole = replace(job, prepared=replace(job.prepared, memory=memory, workers=workers))
            companions = find_sidecars(whole.prepared, options.copy_config, request.changes or {})
            return shards.publish_shards(whole, options.verify, companions, str(request.dst), started)


def _for_machine(problem: Problem, threads: int) -> Problem:
    """Let a hint that names one thread's share of the budget name the budget of all threads."""
    if threads < 2 or problem.code is not Code.BUDGET or problem.hint is None:
        return problem
    hint = re.sub(r'(?<=memory=")[0-9]+', lambda share: str(int(share[0]) * threads), problem.hint)
    return replace(problem, hint=f"{hint} It is shared by {threads} threads of a machine.")


def _write_shards(client: Any, job: shards.Job, allow_hooks: bool, options: RunOptions) -> None:
    """Submit the missing shards, and report each finished one. Raises SurgeryError."""
    sizes = [sum(task.nbytes for task in tasks) for tasks in shares(job.prepared.plan, job.head.count)]
    left = missing(job.parts, job.head)
    done = sum(sizes) - sum(sizes[index] for index in left)
    work = functools.partial(write_on_worker, job.where, job.head, allow_hooks, options.verify)
    with _report_lost_cluster("the cluster was lost before all shards were written"):
        futures = {client.submit(work, n, pure=False, key=f"shard-{n}-{job.head.run}"): n for n in left}
    for index, failure in _finished_shards(client, futures):
        if failure is not None:
            kind, problems = failure
            raise kind(*problems)
        done += sizes[index]
        if options.progress is not None:
            options.progress(Progress(done, sum(sizes)))


def write_on_worker(
    where: Publication, head: Head, allow_hooks: bool, verify: Verify, index: int
) -> Failure | None:
    """Write one shard in a worker of the cluster; returns the failure, or None."""
    try:
        parts = shards.parts_of(where)
        if head_of(parts) != head:
            shards.check_not_committed(where, digest_of(head.identity))
            hint = "The destination must be at the same path or URL on all machines."
            raise SourceError(f"{shown(parts.place)}: it has no parts of this run", hint=hint)
        try:
            options = {"memory": head.memory, "workers": 1, "allow_hooks": allow_hooks}
            job = shards.join_job(where, parts, head, options)
        except UsageError as error:  # the arguments were good where the plan was made
            raise SourceError(*error.problems) from error
        shards.check_head(head, parts, job.prepared, head.count)
        with shards.report_parts(job):
            shards.write_shard(job, index, verify)
    except SurgeryError as error:
        host = socket.gethostname()
        return type(error), tuple(replace(p, message=f"on {host}: {p.message}") for p in error.problems)
    return None


@contextlib.contextmanager
def _client(scheduler: str | None, workers: int) -> Iterator[Any]:
    """Connect to a cluster, or start one for this context. Raises MissingLibraryError, WorkersLost."""
    with report_missing("dask", "`engine`: Dask needs the packages dask and distributed"):
        importlib.import_module("dask").config.set({"distributed.logging": QUIET})  # read at the import
        distributed = importlib.import_module("distributed")
    with contextlib.ExitStack() as stack:
        lost = f"no worker can be reached through {scheduler or 'a scheduler of its own'}"
        with _report_lost_cluster(lost, REACH):
            if scheduler is None:
                local = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=0,  # the budget of the run is kept by ckpt-surgery itself
                    silence_logs=logging.CRITICAL,
                )
                stack.callback(local.close, timeout=10)
            address = local.scheduler_address if scheduler is None else scheduler
            client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
            stack.callback(client.close, timeout=5)
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        yield client


def _finished_shards(client: Any, futures: dict[Any, int]) -> Iterator[tuple[int, Failure | None]]:
    """Yield each finished shard and its failure. Raises WorkersLost if no worker is left."""
    waiting, until = dict(futures), time.monotonic() + WORKER_SECONDS
    try:
        while waiting:
            with _report_lost_cluster("the cluster was lost before all shards were written"):
                done = {waiting.pop(future): future.result() for future in list(waiting) if future.done()}
                if client.sync(client.scheduler.ncores, callback_timeout=CONNECT_SECONDS):
                    until = time.monotonic() + WORKER_SECONDS
                elif time.monotonic() > until:
                    raise TimeoutError(f"no worker for {WORKER_SECONDS} seconds")
            yield from done.items()
            time.sleep(POLL)
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is gone has forgotten them
            client.cancel(list(futures), force=True)


@contextlib.contextmanager
def _report_lost_cluster(what: str, hint: str = errors.AGAIN) -> Iterator[None]:
    """Raise WorkersLost, with one sentence, for any error of Dask."""
    try:
        yield
    except SurgeryError:  # a signal
        raise
    except (Exception, asyncio.CancelledError) as error:
        lines = str(error).strip().splitlines() or [""]
        raise WorkersLost(f"{shown(what)} ({type(error).__name__}: {shown(lines[0])})", hint=hint) from error
