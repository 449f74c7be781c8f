"""The walk over the syntax tree of an expression: each node that the language has becomes a closure.

This is the allow-list: a node that has no handler here is refused, with its place. What the closures do is in
`closures`.
"""

import ast
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ckpt_surgery.language import closures
from ckpt_surgery.language.closures import Evaluator, located
from ckpt_surgery.language.lookups import LOOKUPS, within
from ckpt_surgery.language.operators import binary, formatted, truth, unary
from ckpt_surgery.language.other_libraries import attribute_advice, is_module, method_advice
from ckpt_surgery.language.scope import HOOKS, CallUse, GroupUse, NameUse
from ckpt_surgery.language.spans import Spans
from ckpt_surgery.language.subscripts import ATTRIBUTES, attribute, subscripted
from ckpt_surgery.language.values import bounded
from ckpt_surgery.language.vocabulary import usages

MAX_DEPTH = 64
"""Limit on the nesting of an expression."""
MAX_LITERAL_BITS = 64
"""Limit on the bits of an integer that is written out."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}

_REFUSED: dict[type[ast.AST], str] = {
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.NamedExpr: "an assignment (`:=`)",
    ast.Starred: "unpacking with `*`",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.Await: "`await`",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield`",
    ast.Slice: "a slice outside of a subscript",
}

LOOK_UP = "write it as a table under `tables:`, and look it up by its name: `order[name]`"


class Compiler:
    """Walks the syntax tree of one expression, and notes the names, calls and groups that it uses."""

    def __init__(self, text: str, lead: int):
        """`lead`: white space before the expression, which the tree does not count."""
        self.name_uses: list[NameUse] = []
        self.calls: list[CallUse] = []
        self.groups: list[GroupUse] = []
        self._spans = Spans(text, lead)
        self._depth = 0

    def compiled(self, node: ast.expr) -> Evaluator:
        """The closure of one node. Raises ExpressionError where it is not in the language."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            what = _REFUSED.get(type(node), f"`{type(node).__name__}`")
            instead = f"; {LOOK_UP}" if isinstance(node, ast.Dict) else ""
            self._spans.refuse(f"{what} is not part of the expression language{instead}", node)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._spans.refuse(f"nested deeper than {MAX_DEPTH} levels", node)
        evaluator = handler(self, node)
        self._depth -= 1
        return evaluator

    def _all(self, nodes: Sequence[ast.expr]) -> list[Evaluator]:
        return [self.compiled(node) for node in nodes]

    # --- names and literals ---

    def name(self, node: ast.Name) -> Evaluator:
        if node.id.startswith("__"):
            self._spans.refuse(f"the name `{node.id}` is not accepted", node)
        span = self._spans.of(node)
        self.name_uses.append(NameUse(node.id, *span))
        return closures.named(node.id, span)

    def constant(self, node: ast.Constant) -> Evaluator:
        value = node.value
        if isinstance(value, int) and value.bit_length() > MAX_LITERAL_BITS:
            bits = value.bit_length()
            self._spans.refuse(f"the number has {bits} bits; the limit is {MAX_LITERAL_BITS}", node)
        if isinstance(value, float) and not math.isfinite(value):
            self._spans.refuse("the number is beyond what a float holds", node)
        if isinstance(value, bytes | complex) or value is Ellipsis:
            self._spans.refuse(f"{ast.unparse(node)} is not part of the expression language here", node)
        return lambda scope: value

    def sequence(self, node: ast.List | ast.Tuple) -> Evaluator:
        build = tuple if isinstance(node, ast.Tuple) else list
        return closures.sequence(build, self._all(node.elts), self._spans.of(node))

    # --- operators ---

    def binary(self, node: ast.BinOp) -> Evaluator:
        symbol = _BINARY.get(type(node.op))
        if symbol is None:
            self._spans.refuse("this operator is not part of the expression language", node)
        operands = self._all((node.left, node.right))
        return located(functools.partial(binary, symbol), self._spans.of(node), *operands)

    def unary(self, node: ast.UnaryOp) -> Evaluator:
        operand = self.compiled(node.operand)
        if isinstance(node.op, ast.Not):
            return located(lambda value: not truth(value), self._spans.of(node.operand), operand)
        return located(functools.partial(unary, _UNARY[type(node.op)]), self._spans.of(node), operand)

    def comparison(self, node: ast.Compare) -> Evaluator:
        if any(type(op) not in _COMPARE for op in node.ops):
            self._spans.refuse("`is` is not part of the expression language; use `==`", node)
        symbols = [_COMPARE[type(op)] for op in node.ops]
        first, *others = self._all((node.left, *node.comparators))
        return closures.comparisons(first, list(zip(symbols, others, strict=True)), self._spans.of(node))

    def boolean(self, node: ast.BoolOp) -> Evaluator:
        parts = [(self.compiled(part), closures.condition(self._spans.of(part))) for part in node.values]
        return closures.first_decisive(parts, isinstance(node.op, ast.Or))

    def conditional(self, node: ast.IfExp) -> Evaluator:
        test, holds = self.compiled(node.test), closures.condition(self._spans.of(node.test))
        body, other = self._all((node.body, node.orelse))
        return lambda scope: body(scope) if holds(test(scope)) else other(scope)

    # --- subscripts and attributes ---

    def subscript(self, node: ast.Subscript) -> Evaluator:
        value, index = self.compiled(node.value), self._index(node.slice)
        name = _name_of(node.value)
        literal = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if name == "g" and isinstance(literal, int | str):
            self.groups.append(GroupUse(literal, *self._spans.of(node)))
        return located(lambda v, i: subscripted(v, i, name), self._spans.of(node), value, index)

    def _index(self, node: ast.expr) -> Evaluator:
        if isinstance(node, ast.Tuple):
            items = [self._index(item) for item in node.elts]
            return lambda scope: tuple([item(scope) for item in items])
        if isinstance(node, ast.Slice):
            parts = [self._slice_bound(part) for part in (node.lower, node.upper, node.step)]
            return lambda scope: slice(*[part(scope) for part in parts])
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            return lambda scope: ...
        return self.compiled(node)

    def _slice_bound(self, node: ast.expr | None) -> Evaluator:
        return (lambda scope: None) if node is None else self.compiled(node)

    def attribute(self, node: ast.Attribute) -> Evaluator:
        if node.attr not in ATTRIBUTES:
            known = ", ".join(f".{name}" for name in ATTRIBUTES)
            instead = attribute_advice(node.value, node.attr, usages()) or f"; there are {known}"
            self._spans.refuse(f"the attribute `.{node.attr}` is not accepted{instead}", node)
        value = self.compiled(node.value)
        return located(lambda found: attribute(found, node.attr), self._spans.of(node), value)

    # --- calls ---

    def call(self, node: ast.Call) -> Evaluator:
        self._check_arguments(node)
        if isinstance(node.func, ast.Attribute):
            return self._hook(node, node.func)
        if not isinstance(node.func, ast.Name):
            self._spans.refuse("only functions of the language can be called, by their name", node)
        if node.func.id in LOOKUPS:
            return self._lookup(node, node.func.id)
        use = self._call_use(node, node.func)
        self.calls.append(use)
        arguments = self._all(node.args)
        if use.name == "count":
            if len(arguments) != 1 or node.keywords:
                self._spans.refuse("`count` takes one regular expression: count('regex')", node)
            return closures.count(arguments[0], self._spans.of(node))
        if use.name == "sub":
            if len(arguments) != 3 or node.keywords:
                self._spans.refuse("`sub` takes three texts: sub(text, 'regex', 'replacement')", node)
            return located(closures.substitution(), self._spans.of(node), *arguments)
        keywords = {keyword.arg or "": self.compiled(keyword.value) for keyword in node.keywords}
        return closures.call(use, arguments, keywords)

    def _call_use(self, node: ast.Call, function: ast.Name) -> CallUse:
        literal = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        return CallUse(
            function.id,
            len(node.args),
            tuple(keyword.arg or "" for keyword in node.keywords),
            literal if isinstance(literal, str) else None,
            *self._spans.of(node),
            name_end=self._spans.of(function)[1],
        )

    def _check_arguments(self, node: ast.Call) -> None:
        seen: set[str] = set()
        for keyword in node.keywords:
            if keyword.arg is None:
                self._spans.refuse("unpacking with `**` is not part of the expression language", keyword)
            if keyword.arg in seen:  # which only Python's compiler refuses, not its parser
                self._spans.refuse(f"the argument `{keyword.arg}` is given twice", keyword)
            seen.add(keyword.arg)
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self._spans.refuse("unpacking with `*` is not part of the expression language", argument)

    def _hook(self, node: ast.Call, function: ast.Attribute) -> Evaluator:
        if not (isinstance(function.value, ast.Name) and function.value.id == HOOKS):
            instead = f"; {LOOK_UP}" if function.attr in ("index", "get") else ""
            instead = instead or method_advice(function.value, function.attr, usages())
            lacks = "modules" if is_module(function.value) else "methods"
            message = f"expressions have no {lacks}: `.{function.attr}(…)` is not accepted{instead}"
            self._spans.refuse(message, node)
        if node.keywords or function.attr.startswith("_"):
            self._spans.refuse("a hook is called by its name with plain arguments: hooks.name(x)", node)
        hooks, *arguments = self._all((function.value, *node.args))
        return located(
            lambda found, *given: found.call(function.attr, given), self._spans.of(node), hooks, *arguments
        )

    def _lookup(self, node: ast.Call, function: str) -> Evaluator:
        """`has`, `kind` and `get`: what they look up may be missing."""
        has_default = function == "get"
        if len(node.args) != 1 + has_default or node.keywords or not isinstance(node.args[0], ast.Subscript):
            usage = f"{function}(source['a/b']{', default' if has_default else ''})"
            wanted = "one look-up and a default" if has_default else "one look-up"
            self._spans.refuse(f"`{function}` takes {wanted}: {usage}", node)
        subscript, *others = node.args
        assert isinstance(subscript, ast.Subscript)
        parts = [
            self._looked_into(subscript.value),
            self._index(subscript.slice),
            *self._all(others),
        ]
        action = functools.partial(LOOKUPS[function], _name_of(subscript.value))
        return located(action, self._spans.of(node), *parts)

    def _looked_into(self, node: ast.expr) -> Evaluator:
        """`config['a']` in `has(config['a']['b'])`, which may be missing too."""
        if not isinstance(node, ast.Subscript):
            return self.compiled(node)
        holder, index = self._looked_into(node.value), self._index(node.slice)
        return located(within, self._spans.of(node), holder, index)

    # --- f-strings ---

    def f_string(self, node: ast.JoinedStr) -> Evaluator:
        parts = [self._f_string_part(part, node) for part in node.values]
        if not parts:
            return lambda scope: ""
        return located(lambda *pieces: bounded("".join(pieces)), self._spans.of(node), *parts)

    def _f_string_part(self, part: ast.expr, whole: ast.JoinedStr) -> Evaluator:
        if isinstance(part, ast.Constant):
            return self.compiled(part)
        assert isinstance(part, ast.FormattedValue)
        if part.conversion != -1:
            self._spans.refuse("conversions such as `!r` are not part of the expression language", whole)
        with self._spans.inside(whole, part.value):
            value = self.compiled(part.value)
        span = self._spans.of(whole)
        if part.format_spec is None:
            return located(lambda v: formatted(v, ""), span, value)
        assert isinstance(part.format_spec, ast.JoinedStr)
        return located(formatted, span, value, self.f_string(part.format_spec))


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else "…"


_HANDLERS: dict[type[ast.AST], Callable[[Compiler, Any], Evaluator]] = {
    ast.Name: Compiler.name,
    ast.Constant: Compiler.constant,
    ast.List: Compiler.sequence,
    ast.Tuple: Compiler.sequence,
    ast.BinOp: Compiler.binary,
    ast.UnaryOp: Compiler.unary,
    ast.Compare: Compiler.comparison,
    ast.BoolOp: Compiler.boolean,
    ast.IfExp: Compiler.conditional,
    ast.Subscript: Compiler.subscript,
    ast.Attribute: Compiler.attribute,
    ast.Call: Compiler.call,
    ast.JoinedStr: Compiler.f_string,
}
