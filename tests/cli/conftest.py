"""Plans and checkpoints made by hand, for commands whose library calls are replaced."""

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Dropped, Fate, Input, Plan, Step
from tests.support.leaves import array_leaf

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
    first, second, third = (RuleRef(f"rules[{i}]", 4 + 4 * i) for i in range(3))
    steps = [
        step("step", (), F32, Fate.KEPT, ["step"], None),
        *(
            step(
                f"model/block_{i}/mlp/wi/kernel",
                (2048, 8192),
                BF16,
                Fate.RENAMED,
                [f"params/layer_{i}/mlp/wi"],
                first,
            )
            for i in range(48)
        ),
        step(
            "model/stacked/scale",
            (48, 2048),
            F32,
            Fate.TRANSFORMED,
            [f"params/layer_{i}/ln" for i in range(48)],
            second,
        ),
        step("model/head/kernel", (2048, 10), F32, Fate.DEFAULTED, ["target:model/head/kernel"], None),
        step("fusion/kernel", (512, 256), BF16, Fate.ADDED, [], third),
    ]
    rule = RuleRef("rules[3]", 20)
    dropped = [
        Dropped("source", array_leaf(f"opt_state/{i}/mu", (2048,), F32), rule, "drop") for i in range(3)
    ]
    dropped.append(Dropped("source", array_leaf("ema", (2048,), F32), None, "not in target"))
    return make_plan(
        steps, dropped, ["1 of 2 elements of `a[b]` are used by no output"], ("source", "target")
    )


@pytest.fixture
def plain(make_plan) -> Plan:
    """Nothing changes."""
    return make_plan([step("params/w", (4, 4), F32, Fate.KEPT, ["params/w"], None)])


@pytest.fixture
def hostile(make_plan) -> Plan:
    """Keys that would like to be markup, colours and lines of their own."""
    rule = RuleRef("rules[0]", 4)
    return make_plan(
        [
            step("[red]a[/red]", (4,), F32, Fate.RENAMED, ["\x1b[31mb"], rule),
            step("c\nDROPPED  d", (4,), F32, Fate.ADDED, [], rule),
        ],
        warnings=["`\x1b[2J[bold]x`\nis odd"],
    )


@pytest.fixture
def leaves() -> tuple[Leaf, ...]:
    """A small model: two stacks of layers, one leaf that is stored in chunks, and what is no array."""
    spec = ArraySpec((2048, 8192), BF16)
    manifest = Manifest(spec, (512, 8192), Codec("zstd", (0, 1), "[]"), {(0, 0): Chunk("d/0", 0, 12)})
    sharding = (
        '{"sharding_type": "NamedSharding", "shape": [4, 2], "axis_names": ["x", "y"], '
        '"partition_spec": ["x", null]}'
    )
    return (
        *(
            Leaf(Key.parse(f"params/layer_{i}/mlp/kernel"), LeafKind.ARRAY, spec, manifest, sharding)
            for i in range(12)
        ),
        *(array_leaf(f"params/layer_{i}/ln", (2048,), F32) for i in range(12)),
        array_leaf("params/embed", (32000, 2048), BF16),
        Leaf(Key.parse("step"), LeafKind.SCALAR, ArraySpec((), np.dtype(np.int64))),
        Leaf(Key.parse("name"), LeafKind.STRING, string="t"),
    )
