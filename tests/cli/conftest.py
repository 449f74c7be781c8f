"""Plans and checkpoints made by hand, for commands whose library calls are replaced."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest
from ckpt_surgery.core.shardings import named_sharding
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Dropped, Fate, Input, Plan, Step
from tests.support.leaves import array_leaf, leaf

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def step(key: str, shape, dtype, fate: Fate, sources: Sequence[str], rule: RuleRef | None) -> Step:
    leaf = array_leaf(key, shape, dtype)
    reads = tuple(tuple(source.split(":", 1)) if ":" in source else ("source", source) for source in sources)
    return Step(leaf, Read("source", leaf), fate, rule, reads)


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    def make(steps=(), dropped=(), warnings=(), names=("source",)) -> Plan:
        inputs = tuple(Input(name, f"/ckpt/{name}", "orbax", 100, "f") for name in names)
        size = sum(s.leaf.nbytes for s in steps)
        costs = Costs(size, 0, 0, size, size, 64 << 20)
        return Plan("tower.yaml", "ab12", inputs, tuple(steps), tuple(dropped), tuple(warnings), costs)

    return make


@pytest.fixture
def tower(make_plan) -> Plan:
    """Every fate once or more."""
    first, second, third, fourth = (RuleRef(f"rules[{i}]", line) for i, line in enumerate((4, 8, 12, 20)))
    layers = [(f"model/block_{i}/mlp/wi/kernel", f"params/layer_{i}/mlp/wi") for i in range(48)]
    norms = [f"params/layer_{i}/ln" for i in range(48)]
    steps = [
        step("step", (), F32, Fate.KEPT, ["step"], None),
        *(step(new, (2048, 8192), BF16, Fate.RENAMED, [old], first) for new, old in layers),
        step("model/stacked/scale", (48, 2048), F32, Fate.TRANSFORMED, norms, second),
        step("model/head/kernel", (2048, 10), F32, Fate.DEFAULTED, ["target:model/head/kernel"], None),
        step("fusion/kernel", (512, 256), BF16, Fate.ADDED, [], third),
    ]
    moments = [array_leaf(f"opt_state/{i}/mu", (2048,), F32) for i in range(3)]
    dropped = [Dropped("source", leaf, fourth, "drop") for leaf in moments]
    dropped.append(Dropped("source", array_leaf("ema", (2048,), F32), None, "not in target"))
    warnings = ["1 of 2 elements of `a[b]` are used by no output"]
    return make_plan(steps, dropped, warnings, ("source", "target"))


@pytest.fixture
def plain(make_plan) -> Plan:
    """Nothing changes."""
    return make_plan([step("params/w", (4, 4), F32, Fate.KEPT, ["params/w"], None)])


@pytest.fixture
def leaves() -> tuple[Leaf, ...]:
    """A small model: two stacks of layers, one leaf that is stored in chunks, and what is no array."""
    spec = ArraySpec((2048, 8192), BF16)
    manifest = Manifest(spec, (512, 8192), Codec("zstd", (0, 1), "[]"), {(0, 0): Chunk("d/0", 0, 12)})
    stored = {"manifest": manifest, "sharding": named_sharding({"x": 4, "y": 2}, ("x", None))}
    return (
        *(array_leaf(f"params/layer_{i}/mlp/kernel", (2048, 8192), BF16, **stored) for i in range(12)),
        *(array_leaf(f"params/layer_{i}/ln", (2048,), F32) for i in range(12)),
        array_leaf("params/embed", (32000, 2048), BF16),
        leaf("step", "scalar:int64"),
        replace(leaf("name", "string"), string="t"),
    )
