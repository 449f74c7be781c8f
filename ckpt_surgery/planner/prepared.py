"""Plans with what they are carried out with, and their identity, by which `--resume` continues a run."""

import dataclasses
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Encoder, Source
from ckpt_surgery.core.text import abridged
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.functions.arrays import Apply, Node, inputs_first
from ckpt_surgery.functions.base import Function
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.planner.plan import Plan, Replacement, Step

DEFAULT_FORMAT = "orbax"
DEFAULT_ITEM = "default"
"""Name of the item of a step where neither the caller nor the source has one."""


@dataclass(frozen=True)
class DestinationOptions:
    """Destination of the result, and options for writing it."""

    path: str | None
    """Path of the destination; None if the plan is made without one."""
    format: str
    step: int | None
    """Number of the step that the destination gets; None if it is no CheckpointManager directory."""
    item: str | None
    zarr: int
    """Version of the zarr specification: 2 or 3."""
    structure_file: bool
    """Whether the tree is also written as the file that older versions of Orbax look for."""
    shard_size: int | None
    """Bytes of arrays per file at most; None: one file."""
    link_mode: LinkMode

    @property
    def name(self) -> str:
        """The last component of the path; `checkpoint`, which implies no format, where there is no path."""
        return "checkpoint" if self.path is None else os.path.basename(urls.absolute(self.path))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan with everything that is needed to carry it out."""

    plan: Plan
    sources: Mapping[str, Source]
    """The open sources by name; `target` is the target, where that is a checkpoint."""
    destination: DestinationOptions
    encoder: Encoder
    """Encoder of the destination's format."""
    memory: int
    """Budget in bytes."""
    workers: int
    hooks: HookFile | None
    """The hooks of the recipe that the plan was made from; None if it has none or they must not run."""
    configs: Mapping[str, tuple[str, Mapping[str, Any]] | None] = field(default_factory=dict)
    """Name and content of each config that planning read, by source; None where there was none."""
    listing: Mapping[str, Leaf] | None = None
    """Leaves of the target by key, where that is a listing."""

    def replacing(self, replacement: Replacement | None) -> "Prepared":
        """The same for a destination at which this is."""
        return replace(self, plan=replace(self.plan, replaces=replacement))


LONGEST_TEXT = 1 << 15
"""Characters of a text about sources: `run.json`, which holds it, is read up to 64 KiB."""


def identity_of(prepared: Prepared) -> Mapping[str, str]:
    """Parts that have to be equal for a run to go on with what another one has written.

    They are the version of the program, a digest of the plan, and the states of its sources' files. The
    digest covers recipe, params and hooks, how the destination is written, the values of all outputs, and the
    regions into which they are cut, so that the same numbers mean the same tasks.
    """
    plan, destination = prepared.plan, prepared.destination
    # What is taken whole is taken again by any run: it takes no time.
    written = replace(plan, steps=tuple([step for step in plan.steps if not step.takes_files]))
    try:
        outputs = plan_digest(written)
    except FunctionError:  # of an extension, and cannot be written down: no other run is known to do the same
        outputs = secrets.token_hex()
    params = [[param.name, repr(param.value)] for param in plan.params]
    how = dataclasses.asdict(replace(destination, path=None))
    parts = [plan.recipe_sha256, params, plan.hooks_sha256, how, destination.name, outputs]
    which = [[i.name, i.format, i.step, i.item, i.fingerprint] for i in plan.inputs]
    held = ((f"{i.name}/{name}", state) for i in plan.inputs for name, state in i.files.items())
    files = {name: [state.size, state.modified, state.version, state.sample] for name, state in held}
    states = json.dumps({"which": which, "files": files})
    return {
        "version": VERSION,
        "plan": digest_of(parts),
        # A later run names what has changed by these states, unless they are too long for the file of a run.
        "sources": states if len(states) <= LONGEST_TEXT else digest_of([which, files]),
    }


def plan_digest(plan: Plan, with_values: bool = True) -> str:
    """SHA-256, hexadecimal, of what a plan makes on any machine: leaves, values, grids and metadata.

    Raises FunctionError for values that cannot be written down.
    """
    leaves = [_leaf(step) for step in plan.steps]
    described = {"leaves": leaves, "metadata": json.dumps(plan.metadata, default=repr)}
    if with_values:
        described["values"] = value_digests([step.value for step in plan.steps])
    return digest_of(described)


def _leaf(step: Step) -> list[Any]:
    """Description of an output, and the grid it is stored in."""
    leaf, cut = step.leaf, step.cut
    grid = "stored" if step.stored is not None else cut and [cut.chunks, cut.block, cut.pieces]
    about = [leaf.kind, str(leaf.spec), leaf.sharding, leaf.prng_impl, leaf.string, leaf.empty]
    return [leaf.key.names, leaf.key.sequences, *about, grid]


def digest_of(parts: Any) -> str:
    """SHA-256, hexadecimal, of a JSON value."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def value_digests(values: Sequence[Node]) -> list[str]:
    """SHA-256, hexadecimal, of each value. Raises FunctionError for functions whose fields have no text."""
    digests: dict[Node, str] = {}

    def digest(node: Node) -> str:
        if node in digests:
            return digests[node]
        if isinstance(node, Apply):
            parts = (function_text(node.function), *map(digest, node.inputs))
        else:
            parts = ("leaf", node.source, node.leaf.key.text)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    for node in inputs_first(values):
        digests[node] = digest(node)
    return [digest(value) for value in values]


def function_text(function: Function) -> str:
    """Text that only equal functions have: module, name, and the fields that are compared.

    Raises FunctionError for fields other than None, bools, numbers, texts, dtypes, `...`, and their tuples.
    """
    cls = type(function)
    fields = [field for field in dataclasses.fields(function) if field.compare]  # type: ignore[arg-type]
    given = ", ".join(f"{field.name}={_text_of(getattr(function, field.name), function)}" for field in fields)
    return f"{cls.__module__}.{cls.__qualname__}({given})"


def _text_of(value: Any, function: Function) -> str:
    if type(value) is tuple:
        return f"({''.join(f'{_text_of(item, function)}, ' for item in value)})"
    if isinstance(value, float) and math.isnan(value):
        return f"{math.copysign(1, value)} nan"
    if value is None or value is ... or isinstance(value, bool | int | float | str | np.dtype):
        return repr(value)
    raise FunctionError(f"`{function.called()}` cannot be saved in a plan: it holds {abridged(value)}")
