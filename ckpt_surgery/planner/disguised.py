"""Finds where a plan uses integers of uint16 that are bfloat16 in truth, as old versions of T5X stored it."""

from collections.abc import Iterator, Mapping, Set

from ckpt_surgery.core.dtypes import kind
from ckpt_surgery.functions.dtypes import Bitcast
from ckpt_surgery.graph.nodes import Apply, Read, inputs_first, reads
from ckpt_surgery.planner.plan import Plan

Suspects = Mapping[str, Set[str]]
"""Texts of the keys of such leaves, by source."""


def converted(plan: Plan, suspects: Suspects) -> list[str]:
    """Keys of the outputs for which such integers become floating-point numbers by value, which are wrong."""
    return [
        step.leaf.key.text
        for step in plan.steps
        if any(
            _converts(node) and any(_suspected(read, suspects) for read in reads(node))
            for node in inputs_first([step.value])
        )
    ]


def used_as_integers(plan: Plan, suspects: Suspects) -> int:
    """Number of such leaves whose integers are used as they are."""
    read = (read for step in plan.steps for read in _read_as_integers(step.value))
    return len({(one.source, one.leaf.key.text) for one in read if _suspected(one, suspects)})


def _suspected(read: Read, suspects: Suspects) -> bool:
    return read.leaf.key.text in suspects.get(read.source, ())


def _read_as_integers(value: Apply | Read) -> Iterator[Read]:
    if isinstance(value, Read):
        yield value
    for node in inputs_first([value]):
        if not isinstance(node.function, Bitcast):
            yield from (part for part in node.inputs if isinstance(part, Read))


def _converts(node: Apply) -> bool:
    """True if a function makes floating-point numbers of integers of uint16, and not by their bits."""
    if isinstance(node.function, Bitcast) or kind(node.spec.dtype) not in "fc":
        return False
    return any(part.spec.dtype.name == "uint16" for part in node.inputs)
