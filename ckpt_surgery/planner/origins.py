"""The leaves that a step reads, and the functions that its value is made of."""

from collections import Counter
from collections.abc import Mapping

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.list_reductions import ListReduction
from ckpt_surgery.planner.plan import Step


def origins(step: Step) -> dict[tuple[str, str], Leaf]:
    """The leaves that a value is computed from, by source and key: those of `step.sources`."""
    return {(read.source, read.leaf.key.text): read.leaf for read in reads(step.value)}


def printed_origin(source: str, key: str, found: Mapping[tuple[str, str], Leaf]) -> str:
    """How the key of a leaf of a source is printed. `found`: what `origins` gives."""
    leaf = found.get((source, key))
    return key if leaf is None else leaf.key.printed


def functions(step: Step) -> list[tuple[str, ArraySpec, int]]:
    """Name and result of the functions of a value, each after its inputs, and how many of them there are.

    Those with the same number of functions below them, of one name and result, are counted together.
    """
    applied = Counter((one.height, one.function.called(), one.spec) for one in inputs_first([step.value]))
    ordered = sorted(applied.items(), key=lambda item: item[0][0])
    return [(name, spec, count) for (_, name, spec), count in ordered]


def is_mean(value: Node) -> bool:
    """Whether a value is the mean of several leaves, perhaps in another dtype."""
    while isinstance(value, Apply) and isinstance(value.function, Cast):
        (value,) = value.inputs
    inputs = value.inputs if isinstance(value, Apply) and value.function == ListReduction("mean") else ()
    return len(inputs) > 1 and all(isinstance(one, Read) for one in inputs)
