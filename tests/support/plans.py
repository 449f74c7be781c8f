"""Plans made from listings in memory, for tests of claims and planner."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest, raw_codec
from ckpt_surgery.core.protocols import DataFile
from ckpt_surgery.language.configs import Config, Configs, Layer
from ckpt_surgery.language.loading import TargetPolicy, parse_recipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.target import Target
from ckpt_surgery.planner.transfers import Destination

MEMORY = 1 << 30
COMPUTED = Destination(
    unsupported=lambda leaves: [],
    adopts=lambda leaf, manifest: False,
    wholly_stored=lambda manifest: manifest.complete,
    data_file=lambda path: DataFile(path, 0, 0),
    format="memory",
    holds_empty=True,
    device=None,
)
"""A destination that adopts nothing."""


def key(text: str) -> Key:
    """`a/[0]/b` has a list index in it."""
    names = text.split("/")
    return Key(tuple(n.strip("[]") for n in names), tuple(n.startswith("[") for n in names))


def leaf(text: str, described: str = "float32[2,3]") -> Leaf:
    """A leaf from `dtype[shape]`, or from the name of a kind; `scalar:int64` is a scalar."""
    if described in ("string", "empty"):
        return Leaf(key(text), LeafKind(described), string="hello" if described == "string" else None)
    if described == "prng_key":
        return Leaf(
            key(text), LeafKind.PRNG_KEY, ArraySpec((2,), np.dtype(np.uint32)), prng_impl="threefry2x32"
        )
    if described.startswith("scalar:"):
        return Leaf(key(text), LeafKind.SCALAR, ArraySpec((), dtype_named(described.removeprefix("scalar:"))))
    dtype, _, shape = described.rstrip("]").partition("[")
    spec = ArraySpec(tuple(int(n) for n in shape.split(",") if n), dtype_named(dtype))
    return Leaf(key(text), LeafKind.ARRAY, spec, Manifest(spec, spec.shape, raw_codec(spec.ndim), {}))


def listing(leaves: Mapping[str, str] | Sequence[str]) -> dict[str, Leaf]:
    """Leaves by key: from names alone, or with descriptions."""
    described = leaves if isinstance(leaves, Mapping) else dict.fromkeys(leaves, "float32[2,3]")
    made = [leaf(text, description) for text, description in described.items()]
    return {one.key.text: one for one in made}


def plan_of(
    recipe: str,
    *sources: Mapping[str, str] | Sequence[str],
    target: Mapping[str, str] | Sequence[str] | None = None,
    readable: bool = True,
    overrides: Sequence[str] = (),
    memory: int = MEMORY,
    unsupported: Callable[[Sequence[Leaf]], list[str]] = COMPUTED.unsupported,
    config: Mapping[str, Any] | None = None,
    flat: bool = False,
) -> Plan:
    """The plan of a recipe's text over listings; `config` is what lies beside the first source."""
    loaded = parse_recipe(recipe, "recipe.yaml", overrides)
    names = loaded.recipe.source_names(len(sources))
    loaded = replace(loaded, configs=configs(config))
    listings = {name: listing(given) for name, given in zip(names, sources, strict=True)}
    wanted = None
    if target is not None:
        wanted = Target(listing(target), readable, loaded.recipe.target or TargetPolicy())
    destination = replace(COMPUTED, unsupported=unsupported, flat=flat)
    return make_plan(loaded, listings, wanted, [], {}, destination, memory, 2)


def configs(config: Mapping[str, Any] | None) -> Configs:
    """Of one source, which has this config."""
    layers = [] if config is None else [Layer("config.json", config)]
    return Configs({"source": Config("config", "there is no config.json", lambda: layers)})


def fates(plan: Plan) -> dict[str, str]:
    """Output key → fate; dropped keys too, unless an output has the same name."""
    gone = {d.leaf.key.text: "dropped" for d in plan.dropped}
    return {**gone, **{s.leaf.key.text: str(s.fate) for s in plan.steps}}
