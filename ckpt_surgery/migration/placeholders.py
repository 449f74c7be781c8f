"""Expressions in which names stand for the operands of a call, until their expressions take the places."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ckpt_surgery.migration.standins import Recorder, node_of


class Operand(Protocol):
    """What stands for an array."""

    @property
    def node(self) -> ast.expr: ...


class Operands:
    """Names for the arrays in one call."""

    def __init__(self, recorder: Recorder, kind: type[Operand]):
        """`kind`: the class of what stands for arrays."""
        self._recorder, self._kind = recorder, kind
        self.by_name: dict[str, Any] = {}

    def node(self, value: Any) -> ast.expr:
        """An argument as an expression, with names for arrays."""
        if isinstance(value, list | tuple):
            items = [self.node(item) for item in value]
            return ast.List(items) if isinstance(value, list) else ast.Tuple(items)
        if isinstance(value, np.integer):
            value = int(value)
        if not isinstance(value, self._kind):
            return node_of(value, self._recorder)
        name = f"array{len(self.by_name)}"
        self.by_name[name] = value
        return ast.Name(name)


class _Filler(ast.NodeTransformer):
    def __init__(self, operands: Mapping[str, Operand]):
        self._operands = operands

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._operands[node.id].node if node.id in self._operands else node


def filled_in(template: ast.expr, operands: Mapping[str, Operand]) -> ast.expr:
    """The expression with those of the operands in place of their names. The template is used up."""
    found: ast.expr = _Filler(operands).visit(template)
    return found


def subscript_node(items: Sequence[Any]) -> ast.expr:
    """The inside of a subscript of integers, slices and None, without slices of whole axes at the end."""
    last = max(i for i, item in enumerate(items) if item != slice(None))
    nodes = [_item_node(item) for item in items[: last + 1]]
    return nodes[0] if len(nodes) == 1 else ast.Tuple(nodes)


def _item_node(item: Any) -> ast.expr:
    if isinstance(item, slice):
        return ast.Slice(*(None if b is None else _integer(b) for b in (item.start, item.stop, item.step)))
    return ast.Constant(None) if item is None else _integer(item)


def _integer(value: int) -> ast.expr:
    constant = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), constant) if value < 0 else constant
