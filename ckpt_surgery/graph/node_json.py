"""Trees of functions over leaves as JSON, from which digests of plans are made. No function is written twice.

    VALUE    ["leaf", SOURCE, KEY]
             [KIND, {FIELD: …}, VALUE, …]    a function, its fields and its inputs
             NUMBER                          index of an entry in the table of shared values

The table holds the subtrees that several values share, and the parts of deep trees. An entry only refers to
earlier entries.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.fields import fields_json
from ckpt_surgery.graph.nodes import (
    Node,
    Read,
    inputs_first,
)

LEAF = "leaf"
"""Kind of a leaf. No function has this kind."""
DEEPEST = 32
"""Limit on the nesting of functions in one JSON value, because readers of JSON have limits too."""

Kinds = Mapping[str, type[Function]]


def nodes_json(nodes: Sequence[Node], kinds: Kinds) -> tuple[list[Any], list[Any]]:
    """The table of shared values, and the values of all nodes in order.

    Raises FunctionError for a function that is not registered under its kind, or whose fields JSON cannot
    hold.
    """
    applied = list(inputs_first(nodes))
    uses = Counter(id(node) for holder in (nodes, *(a.inputs for a in applied)) for node in holder)
    shared: list[Any] = []
    written: dict[int, Any] = {}
    depths: dict[int, int] = {}

    def reference(node: Node) -> Any:
        return [LEAF, node.source, node.leaf.key.text] if isinstance(node, Read) else written[id(node)]

    for node in applied:
        document: Any = [
            _kind(node.function, kinds),
            fields_json(node.function),
            *map(reference, node.inputs),
        ]
        depth = 1 + max((depths.get(id(child), 0) for child in node.inputs), default=0)
        if uses[id(node)] > 1 or depth == DEEPEST:
            shared.append(document)
            document, depth = len(shared) - 1, 0
        written[id(node)], depths[id(node)] = document, depth
    return shared, [reference(node) for node in nodes]


def _kind(function: Function, kinds: Kinds) -> str:
    if function.kind == LEAF or kinds.get(function.kind) is not type(function):
        raise FunctionError(
            f"{type(function).__qualname__} of {type(function).__module__} cannot be saved in a plan: "
            f"the kind `{function.kind}` is not its own",
            hint="Each class of functions needs a `name`, or else a `kind`, that no other class has.",
        )
    return function.kind
