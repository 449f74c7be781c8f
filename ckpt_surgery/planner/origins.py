"""The leaves that a step reads."""

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.graph.nodes import reads
from ckpt_surgery.planner.plan import Step


def origins(step: Step) -> dict[tuple[str, str], Leaf]:
    """The leaves that a value is computed from, by source and key: those of `step.sources`."""
    return {(read.source, read.leaf.key.text): read.leaf for read in reads(step.value)}
