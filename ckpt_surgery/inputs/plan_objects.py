"""Plan objects, which are carried out without reading the recipe again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.inputs.opening import in_memory
from ckpt_surgery.inputs.pinned import (
    THE_PLAN,
    Changes,
    Pinned,
    digest_of_plan,
    entries_of,
    links_of,
    pinned_request,
)
from ckpt_surgery.inputs.request import InMemory, Request
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Plan, origin_of, with_origin
from ckpt_surgery.planner.target import TARGET

APPLY = "apply"
RESTORE = "restore"
MADE_BY = {APPLY: "plan", RESTORE: "plan_restore"}
"""Function that makes the plans, by the function that carries them out."""


@dataclass(frozen=True, eq=False)
class PlanOrigin:
    """Inputs of planning that the Plan itself does not hold."""

    request: Request
    """The request as it was decided, with its recipe, hooks and trees loaded."""
    carried_out_by: str
    """The function that carries the plan out: `apply` or `restore`."""
    configs: Mapping[str, tuple[str, Mapping[str, Any]] | None] = field(default_factory=dict)
    """See `Pinned`, as for the next two."""
    listing: Mapping[str, Leaf] | None = None
    config_changes: Changes = field(default_factory=dict)
    shardings: Any = None
    """The argument of `plan_restore`."""


def remember_request(prepared: Prepared, request: Request, config_changes: Changes | None = None) -> Plan:
    """Attach its origin to a prepared plan, so that `apply` can carry it out.

    The recipe of `request` is loaded.
    """
    options = prepared.destination
    decided = replace(
        request_of_inputs(request, prepared.plan, prepared.sources, prepared.hooks),
        dst=options.path and urls.absolute(options.path),
        format=options.format,
        dst_step=options.step,
        dst_item=options.item,
        link_mode=options.link_mode,
        memory=prepared.memory,
        workers=prepared.workers,
    )
    changes = config_changes or {}
    origin = PlanOrigin(decided, APPLY, prepared.configs, prepared.listing, changes)
    return with_origin(prepared.plan, origin)


def request_of_inputs(
    request: Request, plan: Plan, sources: Mapping[str, Source], hooks: HookFile | None
) -> Request:
    """Resolve the inputs of a request: trees as they are, absolute paths, and the hooks loaded."""
    given: dict[str, str | InMemory] = {
        i.name: InMemory(source) if in_memory(source := sources[i.name]) else urls.absolute(i.path)
        for i in plan.inputs
    }
    target = given.pop(TARGET, None)
    recipe = request.recipe
    if recipe is not None and hooks is not None:
        recipe = replace(recipe, hooks=hooks)
    chosen = replace(request, step=None, src_format=None, last=None, opened=())
    return replace(chosen, recipe=recipe, sources=tuple(given.values()), target=target)


def request_of_plan(given: Request, function: str) -> Request:
    """Make the request that carries out the Plan given in place of the recipe.

    Raises UsageError if the plan is for another function, if its origin is unknown, and for arguments that it
    has decided.
    """
    plan = given.recipe
    origin = origin_of_plan(plan, function)
    pinned = Pinned(
        name=THE_PLAN,
        request=_near(origin.request),
        inputs=plan.inputs,
        configs=origin.configs,
        listing=origin.listing,
        linked=links_of(plan),
        digest=digest_of_plan(plan),
        leaves=lambda: entries_of(plan),
        config_changes=origin.config_changes,
        shardings=origin.shardings,
    )
    return pinned_request(pinned, given)


def _near(request: Request) -> Request:
    """Make the input paths that are below the working directory relative to it."""
    sources = tuple([urls.near(given) if isinstance(given, str) else given for given in request.sources])
    target = request.target
    return replace(request, sources=sources, target=urls.near(target) if isinstance(target, str) else target)


def origin_of_plan(plan: Plan, function: str) -> PlanOrigin:
    """Find the origin of a plan that `function` carries out. Raises UsageError."""
    origin = origin_of(plan)
    if not isinstance(origin, PlanOrigin):
        raise UsageError(
            f"{THE_PLAN} has lost its sources: it was copied, changed or pickled, or is part of a result",
            hint=f"Give the Plan itself that `{MADE_BY[function]}` returned.",
        )
    if origin.carried_out_by != function:
        other = origin.carried_out_by
        raise UsageError(
            f"{THE_PLAN} was made by `{MADE_BY[other]}`, and `{function}` carries out those of "
            f"`{MADE_BY[function]}`",
            hint=f"Call `{other}(plan)`, or make the plan with `{MADE_BY[function]}`.",
        )
    return origin
