"""What a plan is asked for, and plans that are saved in order to be carried out later."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ckpt_surgery.arrays import LinkMode
from ckpt_surgery.errors import PlanError, UsageError
from ckpt_surgery.keys import shown
from ckpt_surgery.packaged import PREFIX
from ckpt_surgery.planner import Plan
from ckpt_surgery.report import plan_json

PathLike = str | os.PathLike[str]
SAVED = "request"
"""The member of a saved plan's JSON from which it can be made again."""


@dataclass(frozen=True)
class Request:
    """What a plan is asked for: the arguments of `plan` and `apply` that decide what comes out."""

    recipe: str | None
    """Path of the recipe; None: the empty one, which keeps every leaf."""
    sources: tuple[str, ...]
    target: str | None = None
    set: tuple[str, ...] = ()
    """`NAME=VALUE` overrides of the recipe's params."""
    step: int | None = None
    item: str | None = None
    src_format: str | None = None
    """Of the sources; None: by what they hold, each for itself."""
    format: str | None = None
    """Of the destination; None: the recipe's `output.format`, else by DST's name, else `orbax`."""
    dst: str | None = None
    dst_step: int | None = None
    dst_item: str | None = None
    shard_size: int | None = None
    """Bytes of arrays per file at most; None: one file."""
    memory: int | None = None
    """Budget in bytes; None: the smaller of 2 GiB and a quarter of what is available."""
    workers: int | None = None
    link_mode: LinkMode = LinkMode.AUTO
    """How stored bytes that need no change come into the destination."""
    allow_hooks: bool = False
    """Whether the recipe's hooks, Python code, may run. A saved plan cannot say so."""


@dataclass(frozen=True)
class _Compared:
    """What a plan has to have in common with the one that was saved."""

    fingerprints: dict[str, str]
    """Of the sources, by name."""
    digest: str
    """Of what was decided."""


@dataclass(frozen=True)
class SavedPlan:
    """A plan as `plan --out` saved it."""

    path: str
    request: Mapping[str, Any]
    """The members of `Request`, and what the plan is compared with when it is made again."""

    def check_same(self, made: Plan) -> None:
        """Raises PlanError where a source, the recipe or its hooks have changed since it was saved."""
        now = {i.name: i.fingerprint for i in made.inputs}
        changed = [name for name, before in self.request["fingerprints"].items() if now.get(name) != before]
        if changed:
            names = ", ".join(changed)
            raise PlanError(f"{names} changed since the plan was made", hint="Make the plan again.")
        if _digest(made) != self.request["digest"]:
            raise PlanError(
                "the recipe changed, or its hooks did, since the plan was made", hint="Make the plan again."
            )


def saved_json(request: Request, made: Plan, memory: int, workers: int) -> dict[str, Any]:
    """A plan's JSON together with all that is needed to make it again; `memory` in bytes."""
    recipe, target = request.recipe, request.target
    whole = replace(
        request,
        recipe=recipe if recipe is None or recipe.startswith(PREFIX) else os.path.abspath(recipe),
        sources=tuple(map(os.path.abspath, request.sources)),
        target=None if target is None else os.path.abspath(target),
        memory=memory,
        workers=workers,
    )
    compared = {"fingerprints": {i.name: i.fingerprint for i in made.inputs}, "digest": _digest(made)}
    return {**plan_json(made), SAVED: {**asdict(whole), **compared}}


def _digest(made: Plan) -> str:
    """Equal for plans that do the same, in any notation of the paths."""
    document = plan_json(made)
    texts = {k: v for k, v in document["recipe"].items() if k != "path"}
    # How a value comes about depends on where DST is, which may be said anew; what it is does not.
    leaves = [{k: v for k, v in leaf.items() if k != "transfer"} for leaf in document["leaves"]]
    decided = {name: document[name] for name in ("params", "dropped")} | {"recipe": texts, "leaves": leaves}
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()


def load_saved(path: PathLike) -> SavedPlan | None:
    """A saved plan; None where the file is something else (a recipe, most likely)."""
    if Path(path).suffix != ".json":
        return None
    try:
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None  # load_recipe says what is wrong with the file
    saved = document.get(SAVED) if isinstance(document, dict) else None
    return SavedPlan(os.fspath(path), saved) if isinstance(saved, dict) else None


def replayed(
    saved: SavedPlan,
    given: Sequence[object],
    dst: PathLike | None,
    memory: int | None,
    workers: int | None,
    allow_hooks: bool,
    link_mode: LinkMode | str | None,
) -> Request:
    """The saved request. Only where to write, and with how much, may be said anew; what may run has to be.

    Raises UsageError where anything else is `given`, and for a document that is no saved plan.
    """
    path = shown(saved.path)
    if any(given):
        raise UsageError(
            f"{path} is a saved plan: it knows its sources and options",
            hint="Give nothing but the destination.",
        )
    compared = ("fingerprints", "digest")
    kept = {k: v for k, v in saved.request.items() if k not in (*compared, "allow_hooks")}
    try:
        request = TypeAdapter(Request).validate_python(kept)
        TypeAdapter(_Compared).validate_python({k: v for k, v in saved.request.items() if k in compared})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: not a plan that `plan --out` saved: {where}: {first['msg']}") from None
    return replace(
        request,
        dst=request.dst if dst is None else os.fspath(dst),
        memory=memory or request.memory,
        workers=workers or request.workers,
        allow_hooks=allow_hooks,
        link_mode=request.link_mode if link_mode is None else LinkMode(link_mode),
    )
