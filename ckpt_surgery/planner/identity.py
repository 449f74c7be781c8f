"""Identity of a run: decides whether `--resume` may continue it."""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.graph.digests import value_digests
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Input, Plan, Step

LONGEST_TEXT = 1 << 15
"""Characters of a text about sources: `run.json`, which holds it, is read up to 64 KiB."""


def identity_of(prepared: Prepared) -> Mapping[str, str]:
    """Parts that have to be equal for a run to go on with what another one has written.

    They are the version of the program, a digest (SHA-256, hexadecimal) of the plan, and the states of its
    sources' files: times, sizes and samples.
    The plan's covers the recipe, its params and hooks, how the destination is written, the values of all
    outputs, and into which regions they are cut, so that the same numbers mean the same tasks.
    """
    plan, destination = prepared.plan, prepared.destination
    # What is taken whole is taken again by any run: it takes no time.
    steps = [step for step in plan.steps if not step.takes_files]
    parts: dict[str, Any] = {
        "recipe": plan.recipe_sha256,
        "params": [[param.name, repr(param.value)] for param in plan.params],
        "hooks": plan.hooks_sha256,
        "destination": {name: value for name, value in asdict(destination).items() if name != "path"},
        "name": destination.name,
        "metadata": json.dumps(plan.metadata, default=repr),
        "outputs": [_form(step) for step in steps],
        "values": _values(steps),
    }
    return {
        "version": VERSION,
        "plan": digest_of(parts),
        "sources": _sources_text(plan.inputs),
    }


def _sources_text(inputs: Sequence[Input]) -> str:
    """The states of the sources' files, by which a later run names what has changed; their digest where that
    is too long for the file of a run."""
    which = [[i.name, i.format, i.step, i.item, i.fingerprint] for i in inputs]
    files = {
        f"{i.name}/{name}": [one.size, one.modified, one.version, one.sample]
        for i in inputs
        for name, one in i.files.items()
    }
    text = json.dumps({"which": which, "files": files})
    return text if len(text) <= LONGEST_TEXT else digest_of([which, files])


def plan_digest(plan: Plan) -> str:
    """SHA-256, hexadecimal, of what a plan makes: descriptions of leaves, values, grids and metadata.

    It is the same on every machine, whatever can be linked there. Raises FunctionError for values that cannot
    be written down.
    """
    values = value_digests([step.value for step in plan.steps])
    return digest_of({**_described(plan), "values": values})


def leaves_digest(plan: Plan) -> str:
    """The same without the values."""
    return digest_of(_described(plan))


def _described(plan: Plan) -> dict[str, Any]:
    return {
        "leaves": [_leaf(step) for step in plan.steps],
        "metadata": json.dumps(plan.metadata, default=repr),
    }


def _leaf(step: Step) -> list[Any]:
    """Description of an output, and the grid it is stored in."""
    one, cut = step.leaf, step.cut
    grid = "stored" if step.stored is not None else cut and [cut.chunks, cut.block, cut.pieces]
    about = [one.kind, str(one.spec), one.sharding, one.prng_impl, one.string, one.empty]
    return [one.key.names, one.key.sequences, *about, grid]


def _form(step: Step) -> list[Any]:
    """Storage of an output, and its division into tasks."""
    grid = None if step.cut is None else [step.cut.chunks, step.cut.block]
    return [step.leaf.key.text, str(step.leaf.spec), step.transfer, grid]


def _values(steps: Sequence[Step]) -> Any:
    try:
        return value_digests([step.value for step in steps])
    except FunctionError:
        # A function of an extension that cannot be written down: no other run is known to do the same.
        return secrets.token_hex()


def digest_of(parts: Any) -> str:
    """SHA-256, hexadecimal, of a JSON value."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
