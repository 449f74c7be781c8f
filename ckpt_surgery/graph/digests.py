"""Digests of values: equal for the same functions of the same leaves, and for no others."""

import hashlib
from collections.abc import Mapping, Sequence

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Apply, Node, inputs_first
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.fields import fields_text

LEAF = "leaf"
"""Kind of a leaf. No function has this kind."""

Kinds = Mapping[str, type[Function]]


def value_digests(values: Sequence[Node], kinds: Kinds) -> list[str]:
    """SHA-256, hexadecimal, of each value: of its function's kind and fields, and of its inputs.

    `kinds`: the functions that values can have. Raises FunctionError for a function that is not registered
    under its kind, or whose fields have no text.
    """
    digests: dict[int, str] = {}

    def digest(node: Node) -> str:
        if isinstance(node, Apply):
            return digests[id(node)]
        return _sha256(LEAF, node.source, node.leaf.key.text)

    for node in inputs_first(values):
        own = _kind(node.function, kinds), fields_text(node.function)
        digests[id(node)] = _sha256(*own, *map(digest, node.inputs))
    return [digest(value) for value in values]


def _sha256(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _kind(function: Function, kinds: Kinds) -> str:
    if function.kind == LEAF or kinds.get(function.kind) is not type(function):
        raise FunctionError(
            f"{type(function).__qualname__} of {type(function).__module__} cannot be saved in a plan: "
            f"the kind `{function.kind}` is not its own",
            hint="Each class of functions needs a `name`, or else a `kind`, that no other class has.",
        )
    return function.kind
