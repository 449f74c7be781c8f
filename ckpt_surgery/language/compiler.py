"""The walk over the syntax tree of an expression: what the language has becomes closures.

Evaluating calls them. Arrays stay lazy: what comes out is a tree of nodes. Whatever is refused is an
ExpressionError that points at the characters it means.
"""

import ast
import functools
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ckpt_surgery.core.errors import FunctionError, SurgeryError
from ckpt_surgery.functions.base import Function, Plain
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.calls import called
from ckpt_surgery.language.looking import LOOKING, within
from ckpt_surgery.language.operators import binary, compared, formatted, truth, unary
from ckpt_surgery.language.scope import (
    HOOKS,
    CallUse,
    ExpressionError,
    GroupUse,
    NameUse,
    Scope,
    Unavailable,
)
from ckpt_surgery.language.subscripts import ATTRIBUTES, OF_VALUES, attribute, subscripted
from ckpt_surgery.language.values import MAX_STRING, bounded, listed, told
from ckpt_surgery.language.vocabulary import call_problem, unknown_name

MAX_DEPTH = 64
MAX_LITERAL_BITS = 64


Evaluator = Callable[[Scope], Any]


def line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]


def _pointing(error: SurgeryError, start: int, end: int) -> ExpressionError:
    problem = error.problems[0]
    return ExpressionError(problem.message, start, end, problem.hint)


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


class Compiler:
    """Walks a Python syntax tree once and makes closures of what the language has."""

    def __init__(self, text: str, lead: int):
        self.name_uses: list[NameUse] = []
        self.calls: list[CallUse] = []
        self.groups: list[GroupUse] = []
        self._text = text
        self._lead = lead
        self._starts = line_starts(text[lead:])
        self._depth = 0
        self._f_string: tuple[int, int] | None = None
        """The span to report inside an f-string whose inner positions Python gets wrong."""

    def compiled(self, node: ast.expr) -> Evaluator:
        """The closure of one node. Raises ExpressionError where it is not in the language."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            what = _REFUSED.get(type(node), f"`{type(node).__name__}`")
            self._refuse(f"{what} is not part of the expression language", node)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"nested deeper than {MAX_DEPTH} levels", node)
        evaluator = handler(self, node)
        self._depth -= 1
        return evaluator

    # --- positions ---

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """The characters of a node. `ast` counts lines, and bytes of UTF-8 in them."""
        if self._f_string is not None:
            return self._f_string
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        start = self._lead + self._starts[min(line, len(self._starts)) - 1]
        rest = self._text[start : start + column]
        if rest.isascii():
            return start + min(column, len(rest))
        return start + len(rest.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def _refuse(self, message: str, node: ast.expr | ast.keyword) -> NoReturn:
        raise ExpressionError(message, *self.span(node))

    def _located(self, action: Callable[..., Any], node: ast.expr, *parts: Evaluator) -> Evaluator:
        """A closure that gives the values of `parts` to `action`, whose errors are told of `node`."""
        start, end = self.span(node)
        if len(parts) == 1:
            (part,) = parts

            def run_one(scope: Scope) -> Any:
                value = part(scope)
                try:
                    return action(value)
                except SurgeryError as error:
                    raise _pointing(error, start, end) from None

            return run_one

        def run(scope: Scope) -> Any:
            values = [part(scope) for part in parts]
            try:
                return action(*values)
            except SurgeryError as error:
                raise _pointing(error, start, end) from None

        return run

    # --- names and literals ---

    def name(self, node: ast.Name, looking: bool = False) -> Evaluator:
        """`looking`: leaves that are only listed will do, for no value is taken."""
        name, (start, end) = node.id, self.span(node)
        if name.startswith("__"):
            self._refuse(f"the name `{name}` is not accepted", node)
        self.name_uses.append(NameUse(name, start, end))

        def run(scope: Scope) -> Any:
            try:
                value = scope.names[name]
            except KeyError:
                raise ExpressionError(unknown_name(name, scope.names), start, end) from None
            if type(value) is Unavailable:
                if looking and value.listed is not None:
                    return value.listed
                raise ExpressionError(value.message, start, end, value.hint)
            return value

        return run

    def constant(self, node: ast.Constant) -> Evaluator:
        value = node.value
        if isinstance(value, int) and value.bit_length() > MAX_LITERAL_BITS:
            self._refuse(f"the number has {value.bit_length()} bits; the limit is {MAX_LITERAL_BITS}", node)
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse("the number is beyond what a float holds", node)
        if isinstance(value, bytes | complex) or value is Ellipsis:
            self._refuse(f"{ast.unparse(node)} is not part of the expression language here", node)
        return lambda scope: value

    def sequence(self, node: ast.List | ast.Tuple) -> Evaluator:
        parts = [self.compiled(item) for item in node.elts]
        start, end = self.span(node)
        build = tuple if isinstance(node, ast.Tuple) else list

        def run(scope: Scope) -> Any:
            try:
                return build(listed(part(scope) for part in parts))
            except FunctionError as error:
                raise _pointing(error, start, end) from None

        return run

    # --- operators ---

    def binary(self, node: ast.BinOp) -> Evaluator:
        symbol = _BINARY.get(type(node.op))
        if symbol is None:
            self._refuse("this operator is not part of the expression language", node)
        left, right = self.compiled(node.left), self.compiled(node.right)
        return self._located(functools.partial(binary, symbol), node, left, right)

    def unary(self, node: ast.UnaryOp) -> Evaluator:
        operand = self.compiled(node.operand)
        if isinstance(node.op, ast.Not):
            return self._located(lambda value: not truth(value), node.operand, operand)
        return self._located(functools.partial(unary, _UNARY[type(node.op)]), node, operand)

    def comparison(self, node: ast.Compare) -> Evaluator:
        if any(type(op) not in _COMPARE for op in node.ops):
            self._refuse("`is` is not part of the expression language; use `==`", node)
        symbols = [_COMPARE[type(op)] for op in node.ops]
        first, *others = [self.compiled(part) for part in (node.left, *node.comparators)]
        if len(others) == 1:
            return self._located(functools.partial(compared, symbols[0]), node, first, others[0])
        chain = list(zip(symbols, others, strict=True))
        start, end = self.span(node)

        def run(scope: Scope) -> bool:
            left = first(scope)
            for symbol, part in chain:
                right = part(scope)
                try:
                    holds = truth(compared(symbol, left, right))
                except SurgeryError as error:
                    raise _pointing(error, start, end) from None
                if not holds:
                    return False
                left = right
            return True

        return run

    def boolean(self, node: ast.BoolOp) -> Evaluator:
        stop_at = isinstance(node.op, ast.Or)
        parts = [(self.compiled(part), self._truth(part)) for part in node.values]

        def run(scope: Scope) -> Any:
            for part, holds in parts:
                value = part(scope)
                if holds(value) == stop_at:
                    break
            return value

        return run

    def _truth(self, node: ast.expr) -> Callable[[Any], bool]:
        start, end = self.span(node)

        def holds(value: Any) -> bool:
            try:
                return truth(value)
            except SurgeryError as error:
                raise _pointing(error, start, end) from None

        return holds

    def conditional(self, node: ast.IfExp) -> Evaluator:
        test, holds = self.compiled(node.test), self._truth(node.test)
        body, other = self.compiled(node.body), self.compiled(node.orelse)
        return lambda scope: body(scope) if holds(test(scope)) else other(scope)

    # --- subscripts and attributes ---

    def subscript(self, node: ast.Subscript, looking: bool = False) -> Evaluator:
        value, index = self._leaves(node.value, looking), self._index(node.slice)
        name = _name_of(node.value)
        literal = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if name == "g" and isinstance(literal, int | str):
            self.groups.append(GroupUse(literal, *self.span(node)))
        return self._located(lambda v, i: subscripted(v, i, name), node, value, index)

    def _leaves(self, node: ast.expr, looking: bool) -> Evaluator:
        """What is looked into: `source` in `source['a/b']`."""
        return self.name(node, looking) if isinstance(node, ast.Name) else self.compiled(node)

    def _index(self, node: ast.expr) -> Evaluator:
        if isinstance(node, ast.Tuple):
            items = [self._index(item) for item in node.elts]
            return lambda scope: tuple([item(scope) for item in items])
        if isinstance(node, ast.Slice):
            parts = [self._optional(part) for part in (node.lower, node.upper, node.step)]
            return lambda scope: slice(*[part(scope) for part in parts])
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            return lambda scope: ...
        return self.compiled(node)

    def _optional(self, node: ast.expr | None) -> Evaluator:
        return (lambda scope: None) if node is None else self.compiled(node)

    def attribute(self, node: ast.Attribute) -> Evaluator:
        if node.attr not in ATTRIBUTES:
            known = ", ".join(f".{name}" for name in ATTRIBUTES)
            self._refuse(f"the attribute `.{node.attr}` is not accepted; there are {known}", node)
        if isinstance(node.value, ast.Subscript):
            value = self.subscript(node.value, looking=node.attr not in OF_VALUES)
        else:
            value = self.compiled(node.value)
        return self._located(lambda found: attribute(found, node.attr), node, value)

    # --- calls ---

    def call(self, node: ast.Call) -> Evaluator:
        self._refuse_unpacking(node)
        if isinstance(node.func, ast.Attribute):
            return self._hook(node, node.func)
        if not isinstance(node.func, ast.Name):
            self._refuse("only functions of the language can be called, by their name", node)
        name, (start, end) = node.func.id, self.span(node)
        if name in LOOKING:
            return self._looking(node, name)
        literal = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        keywords = tuple(keyword.arg or "" for keyword in node.keywords)
        text = literal if isinstance(literal, str) else None
        name_end = self.span(node.func)[1]
        use = CallUse(name, len(node.args), keywords, text, start, end, name_end)
        self.calls.append(use)
        arguments = [self.compiled(argument) for argument in node.args]
        if name == "count":
            return self._count(node, arguments)
        named = [(keyword.arg or "", self.compiled(keyword.value)) for keyword in node.keywords]
        return self._function(use, arguments, named)

    def _refuse_unpacking(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg is None:
                self._refuse("unpacking with `**` is not part of the expression language", keyword)
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self._refuse("unpacking with `*` is not part of the expression language", argument)

    def _function(
        self, use: CallUse, arguments: Sequence[Evaluator], named: Sequence[tuple[str, Evaluator]]
    ) -> Evaluator:
        start, end = use.start, use.end
        problem = call_problem(use.name, len(arguments), [name for name, _ in named])
        if problem is not None:
            error = ExpressionError(problem, start, end if use.name in registry() else use.name_end)
            return functools.partial(_raise, error)
        function: type[Function] | Plain = registry()[use.name]

        def run(scope: Scope) -> Any:
            keywords = {name: value(scope) for name, value in named}
            try:
                given = listed(argument(scope) for argument in arguments)
                return called(function, given, keywords, scope)
            except ExpressionError:
                raise
            except SurgeryError as error:
                raise _pointing(error, start, end) from None

        return run

    def _hook(self, node: ast.Call, function: ast.Attribute) -> Evaluator:
        if not (isinstance(function.value, ast.Name) and function.value.id == HOOKS):
            self._refuse(f"there are no methods; `.{function.attr}(…)` is not accepted", node)
        if node.keywords or function.attr.startswith("_"):
            self._refuse("a hook is called by its name with plain arguments: hooks.name(x)", node)
        hooks = self.compiled(function.value)
        return self._located(
            lambda found, *given: found.call(function.attr, given),
            node,
            hooks,
            *map(self.compiled, node.args),
        )

    def _looking(self, node: ast.Call, function: str) -> Evaluator:
        """`has`, `kind` and `get`: what they look up may not be there; the first two take no value of it."""
        count = 2 if function == "get" else 1
        if len(node.args) != count or node.keywords or not isinstance(node.args[0], ast.Subscript):
            more = ", default" if function == "get" else ""
            told = "one look-up and a default" if function == "get" else "one look-up"
            self._refuse(f"`{function}` takes {told}: {function}(source['a/b']{more})", node)
        subscript, *others = node.args
        assert isinstance(subscript, ast.Subscript)
        holder = self._looked_into(subscript.value, looking=function != "get")
        action = functools.partial(LOOKING[function], _name_of(subscript.value))
        return self._located(action, node, holder, self._index(subscript.slice), *map(self.compiled, others))

    def _looked_into(self, node: ast.expr, looking: bool) -> Evaluator:
        """`config['a']` in `has(config['a']['b'])`, where that may not be there either."""
        if not isinstance(node, ast.Subscript):
            return self._leaves(node, looking)
        return self._located(within, node, self._looked_into(node.value, looking), self._index(node.slice))

    def _count(self, node: ast.Call, arguments: Sequence[Evaluator]) -> Evaluator:
        if len(arguments) != 1 or node.keywords:
            self._refuse("`count` takes one regular expression: count('regex')", node)
        (pattern,) = arguments
        start, end = self.span(node)

        def run(scope: Scope) -> int:
            text = pattern(scope)
            try:
                return _counted(scope, text)
            except SurgeryError as error:
                raise _pointing(error, start, end) from None

        return run

    # --- f-strings ---

    def f_string(self, node: ast.JoinedStr) -> Evaluator:
        parts = [self._f_string_part(part, node) for part in node.values]

        def joined(*pieces: str) -> Any:
            return bounded("".join(pieces))

        return self._located(joined, node, *parts) if parts else lambda scope: ""

    def _f_string_part(self, part: ast.expr, whole: ast.JoinedStr) -> Evaluator:
        if isinstance(part, ast.Constant):
            return self.compiled(part)
        assert isinstance(part, ast.FormattedValue)
        if part.conversion != -1:
            self._refuse("conversions such as `!r` are not part of the expression language", whole)
        value = self._inside_f_string(part.value, whole)
        if part.format_spec is None:
            return self._located(lambda v: formatted(v, ""), whole, value)
        assert isinstance(part.format_spec, ast.JoinedStr)
        return self._located(formatted, whole, value, self.f_string(part.format_spec))

    def _inside_f_string(self, node: ast.expr, whole: ast.JoinedStr) -> Evaluator:
        outer, span = self._f_string, self.span(whole)
        start, end = self.span(node)
        if not _same_code(self._text[start:end], node):
            self._f_string = span
        evaluator = self.compiled(node)
        self._f_string = outer
        return evaluator


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else "…"


def _same_code(text: str, node: ast.expr) -> bool:
    """Whether the text is that node: positions inside f-strings are not always right before Python 3.12."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(text, mode="eval").body) == ast.dump(node)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _raise(error: ExpressionError, scope: Scope) -> NoReturn:
    raise ExpressionError(error.message, error.start, error.end, error.hint)


def _counted(scope: Scope, pattern: Any) -> int:
    if not isinstance(pattern, str) or len(pattern) > MAX_STRING:
        raise FunctionError(f"`count` takes a regular expression as text, not {told(pattern)}")
    if scope.count is None:
        raise FunctionError("`count` has no keys to count here")
    return scope.count(pattern)


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
