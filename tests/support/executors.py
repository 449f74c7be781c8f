"""What carries a plan out: threads of this process, shards that are put together, or a cluster of Dask.

The variable EXECUTOR chooses one for the tests of what all of them promise: `threads`, if it is not set,
`shards` or `dask`. `make executors` runs these tests with the two others.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ckpt_surgery
from ckpt_surgery import Plan, Result

RUNNING = ("overwrite", "allow_hooks", "verify")
"""Options that a shard takes as well as the plan."""


def by_threads(recipe: Any, *sources: Any, **options: Any) -> Result:
    return ckpt_surgery.apply(recipe, *sources, **options)


def by_shards(
    recipe: Any, *sources: Any, dst: Any, on_plan: Callable[[Plan], None] = lambda plan: None, **options: Any
) -> Result:
    """Three shards, not in their order, and one of them twice."""
    running = {name: options[name] for name in RUNNING if name in options}
    planning = {name: value for name, value in options.items() if name != "verify"}
    with TemporaryDirectory() as directory:
        saved = Path(directory) / "plan.json"
        on_plan(ckpt_surgery.plan(recipe, *sources, dst=dst, out=saved, **planning))
        for number in (2, 0, 1, 0):
            ckpt_surgery.apply_shard(saved, shard=f"{number}/3", **running)
    step = options.get("dst_step")
    place = dst if step is None else f"{dst}/{step}"
    result = ckpt_surgery.commit(place, **{k: v for k, v in running.items() if k != "overwrite"})
    assert result is not None
    return result


def by_dask(recipe: Any, *sources: Any, **options: Any) -> Result:
    """Two processes of this machine."""
    return ckpt_surgery.apply(recipe, *sources, engine="dask", **{"workers": 2} | options)


EXECUTORS: Mapping[str, Callable[..., Result]] = {"threads": by_threads, "shards": by_shards, "dask": by_dask}
EXECUTOR = os.environ.get("EXECUTOR", "threads")
carry_out = EXECUTORS[EXECUTOR]
"""As `ckpt_surgery.apply`."""
