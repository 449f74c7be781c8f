"""Trees of functions over leaves as JSON, and back. No function is written twice.

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
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.fields import fields_json, function_of
from ckpt_surgery.graph.nodes import (
    MOST_FUNCTIONS,
    Apply,
    Node,
    Read,
    functions_of,
    inputs_first,
    too_many_functions,
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


class NodeReader:
    """Reads nodes from JSON. All methods raise FunctionError for JSON that does not describe a value."""

    def __init__(
        self, listings: Mapping[str, Mapping[str, Leaf]], kinds: Kinds, external: Mapping[str, Any]
    ) -> None:
        """`listings`: the leaves of each source by key. `external`: values of fields that are not saved."""
        self._listings = listings
        self._kinds = kinds
        self._external = external
        self._shared: list[Node] = []
        self._reads: dict[tuple[str, str], Read] = {}
        """One node for each leaf: what a value uses twice is read once."""
        self._functions = 0

    def share(self, document: Any) -> None:
        """Add the next entry of the table of shared values."""
        self._shared.append(self._node(document))

    def node(self, document: Any) -> Node:
        """The value of an output, which a VALUE describes."""
        node = self._node(document)
        self._functions += functions_of(node, frozenset(), MOST_FUNCTIONS - self._functions)
        if self._functions > MOST_FUNCTIONS:
            raise FunctionError(too_many_functions("up to this one, the outputs are computed from"))
        return node

    def _node(self, document: Any, depth: int = 0) -> Node:
        match document:
            case int() if type(document) is int:
                if not 0 <= document < len(self._shared):
                    raise FunctionError(f"not a shared value: {document}; {len(self._shared)} come before it")
                return self._shared[document]
            case ["leaf", str(source), str(key)]:
                if (source, key) not in self._reads:
                    self._reads[source, key] = Read(source, self._leaf(source, key))
                return self._reads[source, key]
            case [str(kind), dict(fields), *inputs]:
                if depth == DEEPEST:
                    raise FunctionError(f"functions are nested deeper than {DEEPEST} levels")
                return self._applied(kind, fields, [self._node(child, depth + 1) for child in inputs])
        raise FunctionError('a value must be ["leaf", SOURCE, KEY], [KIND, {…}, VALUE, …] or a number')

    def _leaf(self, source: str, key: str) -> Leaf:
        if source not in self._listings:
            raise FunctionError(f"not a source: `{shown(source)}`{did_you_mean(source, self._listings)}")
        leaf = self._listings[source].get(key)
        if leaf is None:
            raise FunctionError(f"`{shown(source)}` has no leaf `{shown(key)}`")
        return leaf

    def _applied(self, kind: str, fields: Mapping[str, Any], inputs: Sequence[Node]) -> Apply:
        if kind not in self._kinds:
            raise FunctionError(f"not a function: `{shown(kind)}`{did_you_mean(kind, self._kinds)}")
        function = function_of(self._kinds[kind], fields, self._external)
        if not function.takes(len(inputs)):
            raise FunctionError(f"`{kind}` does not take {len(inputs)} arrays")
        for child in inputs:
            if isinstance(child, Read) and child.leaf.spec is None:
                raise FunctionError(f"`{shown(child.leaf.key.printed)}` is not an array")
        node = Apply(function, tuple(inputs))
        try:
            _ = node.spec
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError) as error:
            raise FunctionError(f"`{kind}` does not fit its fields and inputs: {error}") from error
        return node
