"""The decoders that packaged recipes convert, each with a model of a width that runs in a moment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.language.loading import load_recipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from tests.recipes import (
    decoder_layouts,
    deepseek_layouts,
    gpt_oss_layout,
    leaves,
    llama4_layouts,
)
from tests.recipes.leaves import Arrays, Layout, Shapes, Sizes
from tests.recipes.running import RECIPES
from tests.support.memory import MemorySink, MemorySource
from tests.support.plans import COMPUTED

FULL_WIDTH = 1 << 36
"""A budget for sources whose arrays are single chunks."""
BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


@dataclass(frozen=True)
class Family:
    """What two recipes, there and back, are for."""

    name: str
    module: ModuleType
    narrow: Sizes
    small: Sizes
    """With few layers, for what is only planned."""
    contradicting: str = ""
    """Params that no config of `small` has, besides those of all families."""

    @property
    def recipes(self) -> tuple[str, str]:
        return f"hf-{self.name}-to-jax", f"jax-to-hf-{self.name}"

    def layout(self, **params: Any) -> Any:
        return getattr(self.module, "Layout", Layout)(**params)

    def params(self, layout: Layout, back: bool, d: Any = None) -> list[str]:
        return leaves.params(d or self.small, layout, back)

    def config(self, d: Any = None, **more: Any) -> dict[str, Any]:
        return self.module.hf_config(d or self.small) | more

    def recorded(self, layout: Layout, d: Any = None) -> dict[str, Any]:
        return leaves.recorded(self.recipes[0], self.config(d), layout)

    def shapes(self, layout: Layout, back: bool, d: Any = None) -> Shapes:
        """Of what one of the recipes takes."""
        return leaves.jax_shapes(d or self.small, layout) if back else leaves.hf_shapes(d or self.small)


def _decoder(name: str) -> Family:
    d = decoder_layouts.NARROW[name]
    more = {"gemma2": "query_pre_attn_scalar=10", "mixtral": "num_experts=9 tied=true", "llama3": "tied=true"}
    more |= {"qwen2": "tied=true", "qwen3": "tied=false", "qwen3_moe": "num_experts=9 tied=true"}
    heads = "num_heads=2 num_kv_heads=1 head_dim=12"
    small = replace(d, layers=7) if name == "gemma3" else d
    return Family(decoder_layouts.recipe(d), decoder_layouts, d, small, f"{heads} {more.get(name, '')}")


DECODERS = {name: _decoder(name) for name in decoder_layouts.NARROW}
FAMILIES = DECODERS | {
    "gpt_oss": Family(
        "gpt-oss",
        gpt_oss_layout,
        gpt_oss_layout.NARROW,
        gpt_oss_layout.SMALL,
        "num_heads=2 num_kv_heads=1 head_dim=12 num_experts=9 tied=true",
    ),
    "deepseek_v3": Family(
        "deepseek-v3",
        deepseek_layouts,
        deepseek_layouts.NARROW,
        deepseek_layouts.SMALL,
        "first_dense=3 num_heads=2 num_experts=4 tied=true",
    ),
    "llama4": Family(
        "llama4",
        llama4_layouts,
        llama4_layouts.NARROW,
        llama4_layouts.SMALL,
        "num_heads=2 num_kv_heads=1 head_dim=12 num_experts=4 moe_step=1 tied=true",
    ),
}


def converted(recipe: str, arrays: Mapping[str, np.ndarray], given: list[str]) -> Arrays:
    """What a packaged recipe makes of arrays; every element of its outputs is written once."""
    loaded = load_recipe(RECIPES / f"{recipe}.yaml", given)
    source = MemorySource(arrays)
    plan = make_plan(loaded, {"source": source.leaves()}, None, [], {}, COMPUTED, 1 << 26, 2)
    sink = MemorySink(outputs_of(plan))
    run(plan, {"source": source}, sink, Means(1 << 26, 2))
    assert all((count == 1).all() for count in sink.writes.values())
    return sink.arrays


def shapes_of(plan: Plan) -> Shapes:
    assert {step.leaf.spec.dtype for step in plan.steps if step.leaf.spec} == {BF16}
    return {step.leaf.key.text: step.leaf.spec.shape for step in plan.steps if step.leaf.spec}


def edited(shapes: Mapping[str, tuple[int, ...]], edits: Mapping[str, tuple[int, ...] | None]) -> Shapes:
    """The listing without the keys that are None, and with the others."""
    assert all(key in shapes for key, shape in edits.items() if shape is None)
    whole = dict(shapes) | {key: shape for key, shape in edits.items() if shape}
    return {key: shape for key, shape in whole.items() if edits.get(key, shape)}
