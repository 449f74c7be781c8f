"""Finds where a plan uses integers of uint16 that are bfloat16 in truth, as old versions of T5X stored it."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import DTYPES, kind
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads
from ckpt_surgery.functions.dtypes import Bitcast
from ckpt_surgery.planner.plan import Plan

UINT16, BFLOAT16 = DTYPES["uint16"], DTYPES["bfloat16"]

Suspects = Mapping[str, Set[str]]
"""Texts of the keys of such leaves, by source."""


def is_uint16(leaf: Leaf) -> bool:
    """Whether a leaf is an array of uint16, which may be bfloat16."""
    return leaf.kind is LeafKind.ARRAY and leaf.spec is not None and leaf.spec.dtype == UINT16


def as_bfloat16(leaf: Leaf) -> Leaf:
    """The leaf, with the dtype bfloat16 if it is an array of uint16."""
    if leaf.spec is None or not is_uint16(leaf):
        return leaf
    return replace(leaf, spec=ArraySpec(leaf.spec.shape, BFLOAT16))


def bfloat16_of(read: Read) -> Apply:
    """The value of an array of uint16 as bfloat16 with the same bits."""
    return Apply(Bitcast(BFLOAT16), (read,))


def misread(keys: Iterable[str]) -> PlanError:
    """The error for leaves of which such integers become floating-point numbers."""
    hint = "Read them as bfloat16: `uint16=\"bfloat16\"`, or `bitcast(x, 'bfloat16')` in the rule."
    wrong = "but T5X kept bfloat16 as uint16, and the numbers would be wrong"
    message = f"{few_keys(keys)}: integers of uint16 would become floating-point numbers, {wrong}"
    return PlanError(message, hint=hint)


def converted(plan: Plan, suspects: Suspects) -> list[str]:
    """Keys of the outputs for which such integers become floating-point numbers by value, which are wrong."""
    keys = []
    for step in plan.steps:
        integers = {id(read) for read in reads(step.value) if _is_suspected(read, suspects)}
        for node in inputs_first([step.value]) if integers else ():
            # What `bitcast` makes is made of their bits; what comparisons make are masks, and no numbers.
            if isinstance(node.function, Bitcast) or integers.isdisjoint(map(id, node.inputs)):
                continue
            if kind(node.spec.dtype) in "fc":
                keys.append(step.leaf.key.text)
                break
            integers |= {id(node)} if kind(node.spec.dtype) != "b" else set()
    return keys


def used_as_integers(plan: Plan, suspects: Suspects) -> int:
    """Number of such leaves whose integers are used as they are."""
    used: list[Node] = [step.value for step in plan.steps]
    for node in inputs_first(list(used)):
        used += () if isinstance(node.function, Bitcast) else node.inputs
    read = (node for node in used if isinstance(node, Read) and _is_suspected(node, suspects))
    return len({(node.source, node.leaf.key.text) for node in read})


def _is_suspected(read: Read, suspects: Suspects) -> bool:
    return read.leaf.key.text in suspects.get(read.source, ())
