"""Measurements for docs/scale.md: `python -m benchmarks.scale`.

Requests and seconds of each command for checkpoints of many chunks in a store of this machine, and processor
seconds for a conversion. The store is a directory with a file for each object, without a network: what counts
is its requests.
"""

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ckpt_surgery
from benchmarks.machine import machine
from ckpt_surgery.storage.store import store_of
from ckpt_surgery.storage.views import forget
from tests.emulators import s3
from tests.support.key_value import KeyValueStore, key_value

CHUNKS = (1_000, 10_000)
"""Numbers of chunks, each of which is a leaf: an index knows no difference."""
SHARDS = 64
ELEMENTS = 512
"""Float32 numbers of a leaf in the tables of requests: enough that its bytes are not in the index."""
CONVERTED = 1 << 30
"""Bytes of the conversion of which processor seconds are measured."""
LATENCY = 0.05
"""Seconds that each request to S3's emulator takes longer."""


@dataclass
class Cost:
    """One command."""

    requests: int = 0
    puts: int = 0
    seconds: float = 0.0


@contextmanager
def counted(url: str) -> Iterator[Cost]:
    """Counts the requests to the store of a URL within the context."""
    store = store_of(url)[0]
    assert isinstance(store, KeyValueStore)
    cost, before, started = Cost(), len(store.requests), time.monotonic()
    forget()
    yield cost
    asked = store.requests[before:]
    cost.requests, cost.seconds = len(asked), time.monotonic() - started
    cost.puts = sum(one.startswith(("put", "copy")) for one in asked)


def main() -> None:
    """Measure, and print the tables."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        print(machine(directory), end="\n\n")
        print("| chunks | command | requests | of them writes | seconds |\n|---|---|---|---|---|")
        for chunks in CHUNKS:
            with key_value(directory / str(chunks)) as bucket:
                for name, cost in _commands(chunks, bucket, directory):
                    print(f"| {chunks:,} | {name} | {cost.requests:,} | {cost.puts:,} | {cost.seconds:.2f} |")
        print("\nFor each GiB of float32 that is cast to bfloat16:", *_conversion(directory), sep="\n")
        seconds = _at_a_distance(directory)
        print(f"\ninspect 10,000 leaves, {LATENCY * 1000:.0f} ms for each request: {seconds:.2f} s")


def _commands(chunks: int, bucket: str, directory: Path) -> Iterator[tuple[str, Cost]]:
    arrays = {f"layers/{n}/kernel": np.full(ELEMENTS, n, np.float32) for n in range(chunks)}
    _save(directory / "in.npz", arrays)
    source, renamed, cast = f"{bucket}/in", f"{bucket}/renamed", f"{bucket}/cast"
    ckpt_surgery.convert(directory / "in.npz", source, verify="none")
    with counted(source) as cost:
        ckpt_surgery.inspect(source)
    yield "inspect", cost
    rename = {"version": 1, "rules": [{"match": "layers/(.*)", "to": r"blocks/\1"}]}
    with counted(source) as cost:
        ckpt_surgery.apply(rename, source, dst=renamed)
    yield "apply, rename within the bucket", cost
    recipe = {"version": 1, "rules": [{"match": ".*", "value": "cast(x, 'bfloat16')"}]}
    plan = directory / "plan.json"
    with counted(source) as cost:
        ckpt_surgery.plan(recipe, source, dst=cast, out=plan)
    yield "plan of a cast", cost
    shards = [
        _of(cast, partial(ckpt_surgery.apply_shard, plan, shard=f"{number}/{SHARDS}"))
        for number in range(SHARDS)
    ]
    middle = sorted(shards, key=lambda one: one.seconds)[SHARDS // 2]
    yield f"one of {SHARDS} shards of it", middle
    yield "commit", _of(cast, lambda: ckpt_surgery.commit(cast))


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    np.savez(path, **dict(arrays))  # type: ignore[arg-type]


def _of(url: str, work: Callable[[], Any]) -> Cost:
    with counted(url) as cost:
        work()
    return cost


def _conversion(directory: Path) -> Iterator[str]:
    """Cost of a cast from a bucket to a bucket for each GiB that is read, in lines."""
    generator = np.random.default_rng(0)
    arrays = {f"w{n}": generator.standard_normal((4096, 4096), np.float32) for n in range(CONVERTED >> 26)}
    _save(directory / "large.npz", arrays)
    with key_value(directory / "large") as bucket:
        store = store_of(bucket + "/in")[0]
        assert isinstance(store, KeyValueStore)
        ckpt_surgery.convert(directory / "large.npz", f"{bucket}/in", verify="none")
        recipe = {"version": 1, "rules": [{"match": ".*", "value": "cast(x, 'bfloat16')"}]}
        for verify in ("none", "fast"):
            read, put, before = len(store.read_sizes), len(store.put_sizes), _used()
            with counted(bucket + "/in") as cost:
                ckpt_surgery.apply(recipe, f"{bucket}/in", dst=f"{bucket}/{verify}", workers=2, verify=verify)
            moved = (sum(store.read_sizes[read:]), sum(store.put_sizes[put:]))
            yield (
                f"--verify {verify}: {_used() - before:.2f} processor seconds, {cost.requests} requests, "
                f"{cost.puts} of them writes, {moved[0] / 2**30:.2f} GiB read, {moved[1] / 2**30:.2f} written"
            )


def _at_a_distance(directory: Path) -> float:
    """Seconds of `inspect` of 10,000 leaves in S3's emulator, where each request takes `LATENCY`."""
    arrays = {f"layers/{n}/kernel": np.full(ELEMENTS, n, np.float32) for n in range(10_000)}
    _save(directory / "far.npz", arrays)
    with s3.emulator() as server:
        os.environ.update(s3.ENVIRONMENT | {"AWS_ENDPOINT_URL": server.endpoint})
        url = f"{server.bucket()}/in"
        ckpt_surgery.convert(directory / "far.npz", url, verify="none")
        server.disturbance.latency = LATENCY
        seconds = []
        for _ in range(3):
            forget()
            started = time.monotonic()
            ckpt_surgery.inspect(url)
            seconds.append(time.monotonic() - started)
    return sorted(seconds)[1]


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
