"""Plans made from listings in memory."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ckpt_surgery.core.errors import PlanError, Problem
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import DataFile, Linkable
from ckpt_surgery.language.expressions.lookups import Config, Configs, Layer
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.schema.fields import TargetPolicy
from ckpt_surgery.planner.document import seal
from ckpt_surgery.planner.outputs import Destination
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.target import Target, listed_target
from tests.support.leaves import listing
from tests.support.memory import MemoryEncoder

MEMORY = 1 << 30


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a plan's file with the digest that goes with it, as whoever forges one would do."""
    with contextlib.suppress(TypeError, LookupError, AttributeError):
        document["saved"]["sha256"] = seal(document)
    return document


COMPUTED = Destination(
    encoder=MemoryEncoder(),
    wholly_stored=lambda manifest: manifest.complete,
    data_file=lambda path: DataFile(path, 0, "device:0"),
    format="memory",
    holds_empty=True,
    linkable=None,
)
"""A destination that can link or copy no stored bytes."""


def links_on(domain: str | None, rewritten: Collection[str] = ()) -> Callable[[DataFile], Linkable] | None:
    """Files can be linked on this file system, but for those that may be `rewritten` in place, by path."""

    def linkable(file: DataFile) -> Linkable:
        if file.domain != domain:
            return Linkable.NO
        return Linkable.IF_NEVER_REWRITTEN if file.path in rewritten else Linkable.YES

    return None if domain is None else linkable


def plan_of(
    recipe: str,
    *sources: Mapping[str, str] | Sequence[str],
    target: Mapping[str, str] | Sequence[str] | None = None,
    readable: bool = True,
    overrides: Sequence[str] = (),
    memory: int = MEMORY,
    unsupported: Callable[[Sequence[Leaf]], list[str]] = COMPUTED.encoder.unsupported,
    config: Mapping[str, Any] | None = None,
    flat: bool = False,
) -> Plan:
    """The plan of a recipe's text for listings of sources; `config`: config.json of the first source."""
    loaded = parse_recipe(recipe, "recipe.yaml", overrides)
    names = loaded.recipe.source_names(len(sources))
    loaded = replace(loaded, configs=configs(config))
    listings = {name: listing(given) for name, given in zip(names, sources, strict=True)}
    wanted = None
    if target is not None:
        kind = Target if readable else listed_target
        wanted = kind(listing(target), loaded.recipe.target or TargetPolicy())
    destination = replace(COMPUTED, encoder=MemoryEncoder(unsupported), flat=flat)
    return make_plan(loaded, listings, wanted, [], {}, destination, memory, 2)


def plan_over(
    recipe: str,
    listings: Mapping[str, Mapping[str, Leaf]],
    destination: Destination = COMPUTED,
    memory: int = MEMORY,
    workers: int = 2,
) -> Plan:
    """The plan of a recipe's text for the leaves of sources, by their names."""
    loaded = parse_recipe(recipe, "recipe.yaml")
    return make_plan(loaded, listings, None, [], {}, destination, memory, workers)


def configs(config: Mapping[str, Any] | None) -> Configs:
    """The config.json files of one source, which has this one, or none."""
    layers = [] if config is None else [Layer("config.json", config)]
    return Configs({"source": Config("config", "there is no config.json", lambda: layers)})


def fates(plan: Plan) -> dict[str, str]:
    """The fate of each output, by key; and of each dropped leaf, unless an output has its key."""
    gone = {d.leaf.key.text: "dropped" for d in plan.dropped}
    return {**gone, **{s.leaf.key.text: str(s.fate) for s in plan.steps}}


def transfers_of(plan: Plan) -> dict[str, str]:
    """How each output comes into the destination (`link`, `copy` or `compute`), by its key."""
    return {step.leaf.key.text: step.transfer.value for step in plan.steps}


def problems_of(action: Callable[..., object], *given: object, **options: object) -> tuple[Problem, ...]:
    """The problems for which planning is refused: `problems_of(plan_of, text, leaves)`."""
    with pytest.raises(PlanError) as caught:
        action(*given, **options)
    return caught.value.problems
