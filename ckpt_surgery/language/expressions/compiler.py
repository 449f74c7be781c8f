"""The walk over the syntax tree of an expression: each node that the language has becomes a closure.

This is the allow-list: a node that has no method `visit_…` here is refused, with its place. A closure takes
the scope and gives the node's value. Each is wrapped once, so that the errors of whatever it calls point at
its node.
"""

import ast
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ckpt_surgery.core.errors import Code, FunctionError, SurgeryError
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions import lookups, naming, operators
from ckpt_surgery.language.expressions.calls import call, call_problem
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import (
    HOOKS,
    ExpressionError,
    PatternError,
    Scope,
    Unavailable,
    Use,
    Watched,
    bounded,
    listed,
)

Evaluator = Callable[[Scope], Any]
Span = tuple[int, int]  # Character offsets in the text of an expression: start, and exclusive end

MAX_DEPTH = 64  # Limit on the nesting of an expression
MAX_LITERAL_BITS = 64  # Limit on the bits of an integer that is written out

_SYMBOLS: dict[type[ast.AST], str] = (
    {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.MatMult: "@", ast.Pow: "**", ast.Div: "/"}
    | {ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|"}
    | {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
    | {ast.In: "in", ast.NotIn: "not in"}
    | {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
)
"""Operators of the language, but for `and`, `or` and `not`."""

_REFUSED: dict[type[ast.AST], str] = (
    dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "a comprehension")
    | dict.fromkeys((ast.Yield, ast.YieldFrom), "`yield`")
    | {ast.Lambda: "a lambda", ast.Await: "`await`", ast.Dict: "a dictionary", ast.Set: "a set"}
    | {ast.NamedExpr: "an assignment (`:=`)", ast.Starred: "unpacking with `*`"}
    | {ast.Slice: "a slice outside of a subscript"}
)

LOOK_UP = "write it as a table under `tables:`, and look it up by its name: `order[name]`"


def errors_at(span: Span, action: Evaluator) -> Evaluator:
    """Wrap an action so that its errors point at a span, unless they point at a part of it already."""

    def run(scope: Scope) -> Any:
        try:
            return action(scope)
        except SurgeryError as error:
            if isinstance(error, ExpressionError) and not isinstance(error, PatternError):
                raise
            problem = error.problems[0]
            raise ExpressionError(problem.message, *span, problem.hint, problem.code) from None

    return run


def line_starts(text: str) -> list[int]:
    """The offset of each line, as Python counts lines."""
    return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]


class Compiler:
    """Walks the syntax tree of one expression; notes the names and groups that it uses, and wrong calls."""

    def __init__(self, text: str, lead: int):
        """`lead`: white space before the expression, which the tree does not count."""
        self.name_uses: list[Use] = []
        self.wrong_calls: list[ExpressionError] = []
        self.groups: list[Use] = []
        self.depth = 0  # Levels of nesting of the expression
        self._text = text
        self._lead = lead
        self._depth = 0
        self._starts = line_starts(text[lead:])
        self._f_string: Span | None = None
        """Span of the f-string around the node, where Python's positions inside it are wrong."""

    def _span(self, node: ast.expr | ast.keyword) -> Span:
        """The characters of a node. `ast` counts lines, and bytes of UTF-8 in them."""
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return self._f_string or (self._offset(node.lineno, node.col_offset), end)

    def _offset(self, line: int, column: int) -> int:
        start = self._lead + self._starts[min(line, len(self._starts)) - 1]
        rest = self._text[start : start + column]
        return start + len(rest.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def _refuse(self, message: str, node: ast.expr | ast.keyword) -> NoReturn:
        raise ExpressionError(message, *self._span(node))

    def compiled(self, node: ast.expr) -> Evaluator:
        """The closure of one node. Raises ExpressionError where it is not in the language."""
        handler: Callable[[Any], Evaluator] | None = getattr(self, f"visit_{type(node).__name__}", None)
        if handler is None:
            what = _REFUSED.get(type(node), f"`{type(node).__name__}`")
            instead = f"; {LOOK_UP}" if isinstance(node, ast.Dict) else ""
            self._refuse(f"{what} is not part of the expression language{instead}", node)
        self._depth += 1
        self.depth = max(self.depth, self._depth)
        if self._depth > MAX_DEPTH:
            self._refuse(f"nested deeper than {MAX_DEPTH} levels", node)
        evaluator = handler(node)
        self._depth -= 1
        return evaluator if isinstance(node, ast.Constant) else errors_at(self._span(node), evaluator)

    def _all(self, nodes: Sequence[ast.expr]) -> list[Evaluator]:
        return [self.compiled(node) for node in nodes]

    def visit_Name(self, node: ast.Name) -> Evaluator:
        name = node.id
        if name.startswith("__"):
            self._refuse(f"the name `{name}` is not accepted", node)
        self.name_uses.append(Use(name, *self._span(node)))

        def value_of(scope: Scope) -> Any:
            try:
                value = scope.names[name]
            except KeyError:
                raise FunctionError(naming.unknown_name(name, scope.names), code=Code.UNKNOWN_NAME) from None
            if type(value) is Watched:
                value.note_use()
                return value.value
            if type(value) is Unavailable:
                raise FunctionError(value.message, hint=value.hint, code=value.code)
            return value

        return value_of

    def visit_Constant(self, node: ast.Constant) -> Evaluator:
        value = node.value
        if isinstance(value, int) and (bits := value.bit_length()) > MAX_LITERAL_BITS:
            self._refuse(f"the number has {bits} bits; the limit is {MAX_LITERAL_BITS}", node)
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse("the number is beyond what a float holds", node)
        if isinstance(value, bytes | complex) or value is Ellipsis:
            self._refuse(f"{ast.unparse(node)} is not part of the expression language here", node)
        return lambda scope: value

    def visit_List(self, node: ast.List | ast.Tuple) -> Evaluator:
        build = tuple if isinstance(node, ast.Tuple) else list
        parts = self._all(node.elts)
        return lambda scope: build(listed(part(scope) for part in parts))

    visit_Tuple = visit_List

    def visit_BinOp(self, node: ast.BinOp) -> Evaluator:
        symbol = _SYMBOLS.get(type(node.op))
        if symbol is None:
            self._refuse("this operator is not part of the expression language", node)
        left, right = self._all((node.left, node.right))
        return lambda scope: operators.binary(symbol, left(scope), right(scope))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Evaluator:
        if isinstance(node.op, ast.Not):
            condition = self._condition(node.operand)
            return lambda scope: not condition(scope)[1]
        symbol, operand = _SYMBOLS[type(node.op)], self.compiled(node.operand)
        return lambda scope: operators.unary(symbol, operand(scope))

    def visit_Compare(self, node: ast.Compare) -> Evaluator:
        """`a < b < c`: each operand is evaluated once, and none after the first comparison that is false."""
        if not _SYMBOLS.keys() >= set(map(type, node.ops)):
            self._refuse("`is` is not part of the expression language; use `==`", node)
        first = self.compiled(node.left)
        symbols = [_SYMBOLS[type(op)] for op in node.ops]
        others = list(zip(symbols, self._all(node.comparators), strict=True))
        is_chain = len(others) > 1

        def run(scope: Scope) -> Any:
            left = first(scope)
            for symbol, part in others:
                right = part(scope)
                value = operators.compared(symbol, left, right)
                if is_chain and not operators.truth(value):
                    return False
                left = right
            return value

        return run

    def _condition(self, node: ast.expr) -> Evaluator:
        """A value and its truth; where it has none, the error points at it."""
        part = self.compiled(node)
        return errors_at(self._span(node), lambda scope: (value := part(scope), operators.truth(value)))

    def visit_BoolOp(self, node: ast.BoolOp) -> Evaluator:
        """`a or b` and `a and b`: the first value that decides, else the last one."""
        parts = [self._condition(part) for part in node.values]
        decisive = isinstance(node.op, ast.Or)

        def run(scope: Scope) -> Any:
            for part in parts:
                value, holds = part(scope)
                if holds == decisive:
                    break
            return value

        return run

    def visit_IfExp(self, node: ast.IfExp) -> Evaluator:
        condition = self._condition(node.test)
        body, other = self._all((node.body, node.orelse))
        return lambda scope: body(scope) if condition(scope)[1] else other(scope)

    def visit_Subscript(self, node: ast.Subscript) -> Evaluator:
        value, index = self.compiled(node.value), self._index(node.slice)
        literal = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(node.value, ast.Name) and node.value.id == "g" and isinstance(literal, int | str):
            self.groups.append(Use(literal, *self._span(node)))
        return lambda scope: lookups.subscripted(value(scope), index(scope))

    def _index(self, node: ast.expr | None) -> Evaluator:
        if node is None:
            return lambda scope: None
        if isinstance(node, ast.Tuple):
            items = [self._index(item) for item in node.elts]
            return lambda scope: tuple([item(scope) for item in items])
        if isinstance(node, ast.Slice):
            parts = [self._index(part) for part in (node.lower, node.upper, node.step)]
            return lambda scope: slice(*[part(scope) for part in parts])
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            return lambda scope: ...
        return self.compiled(node)

    def visit_Attribute(self, node: ast.Attribute) -> Evaluator:
        if node.attr not in lookups.ATTRIBUTES:
            known = ", ".join(f".{name}" for name in lookups.ATTRIBUTES)
            instead = naming.attribute_advice(node.value, node.attr) or f"; there are {known}"
            self._refuse(f"the attribute `.{node.attr}` is not accepted{instead}", node)
        value = self.compiled(node.value)
        return lambda scope: lookups.attribute(value(scope), node.attr)

    def visit_Call(self, node: ast.Call) -> Evaluator:
        for keyword in node.keywords:
            if keyword.arg is None:
                self._refuse("unpacking with `**` is not part of the expression language", keyword)
        if isinstance(node.func, ast.Attribute):
            return self._hook(node, node.func)
        if not isinstance(node.func, ast.Name):
            self._refuse("only functions of the language can be called, by their name", node)
        if node.func.id in lookups.LOOKUPS:
            return self._lookup(node, node.func.id)
        if node.func.id in lookups.WITH_PATTERNS:
            return self._with_pattern(node, node.func.id)
        return self._function(node, node.func)

    def _with_pattern(self, node: ast.Call, name: str) -> Evaluator:
        """`count` or `sub`; `check` lists the error of a regular expression that is written out."""
        parameters, usage, action = lookups.WITH_PATTERNS[name]
        arguments = self._all(node.args)
        if len(arguments) != len(parameters) or node.keywords:
            self._refuse(f"`{name}` takes {usage}", node)
        pattern = node.args[parameters.index("regex")]
        if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
            try:
                compile_pattern(pattern.value)
            except ExpressionError as error:
                self.wrong_calls.append(error.at(*self._span(node)))
        budget = MatchBudget()  # which all matches at this place of the recipe share
        return lambda scope: action(budget, scope, *[argument(scope) for argument in arguments])

    def _function(self, node: ast.Call, name: ast.Name) -> Evaluator:
        """A call of a function of the registry; one that does not fit fails when it is evaluated.

        Until then `check` can list it with all other problems.
        """
        arguments = self._all(node.args)
        keywords = [(keyword.arg or "", self.compiled(keyword.value)) for keyword in node.keywords]
        function = registry().get(name.id)
        if function is None:
            return self._failing(naming.unknown_function(name.id), name, Code.UNKNOWN_FUNCTION)
        if problem := call_problem(function, len(arguments), tuple(name for name, _ in keywords)):
            return self._failing(problem, node, Code.CALL)

        def run(scope: Scope) -> Any:
            by_name = {name: value(scope) for name, value in keywords}
            return call(function, listed(argument(scope) for argument in arguments), by_name, scope.leaf_key)

        return run

    def _failing(self, message: str, node: ast.expr, code: Code) -> Evaluator:
        error = ExpressionError(message, *self._span(node), code=code)
        self.wrong_calls.append(error)

        def fail(scope: Scope) -> NoReturn:
            raise error.with_traceback(None)

        return fail

    def _hook(self, node: ast.Call, function: ast.Attribute) -> Evaluator:
        if not (isinstance(function.value, ast.Name) and function.value.id == HOOKS):
            is_look_up = function.attr in ("index", "get")
            instead = f"; {LOOK_UP}" if is_look_up else naming.method_advice(function.value, function.attr)
            lacks = "modules" if naming.is_module(function.value) else "methods"
            message = f"expressions have no {lacks}: `.{function.attr}(…)` is not accepted{instead}"
            self._refuse(message, node)
        if node.keywords or function.attr.startswith("_"):
            self._refuse("a hook is called by its name with plain arguments: hooks.name(x)", node)
        hooks, *arguments = self._all((function.value, *node.args))
        return lambda scope: hooks(scope).call(function.attr, [argument(scope) for argument in arguments])

    def _lookup(self, node: ast.Call, function: str) -> Evaluator:
        """`has`, `kind` and `get`: what they look up may be missing."""
        action, arguments = lookups.LOOKUPS[function]
        fits = len(node.args) == 1 + arguments.count(",") and not node.keywords
        subscript = node.args[0] if fits else node
        if not isinstance(subscript, ast.Subscript):
            self._refuse(f"`{function}` takes a look-up: {function}({arguments})", node)
        parts = [self._looked_into(subscript.value), self._index(subscript.slice)]
        parts += self._all(node.args[1:])
        return lambda scope: action(*[part(scope) for part in parts])

    def _looked_into(self, node: ast.expr) -> Evaluator:
        """`config['a']` in `has(config['a']['b'])`, which may be missing too."""
        if not isinstance(node, ast.Subscript):
            return self.compiled(node)
        holder, index = self._looked_into(node.value), self._index(node.slice)
        return errors_at(self._span(node), lambda scope: lookups.within(holder(scope), index(scope)))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Evaluator:
        parts = [self._f_string_part(part, node) for part in node.values]
        return lambda scope: bounded("".join([part(scope) for part in parts]))

    def _f_string_part(self, part: ast.expr, whole: ast.JoinedStr) -> Evaluator:
        if isinstance(part, ast.Constant):
            return self.compiled(part)
        assert isinstance(part, ast.FormattedValue)
        if part.conversion != -1:
            self._refuse("conversions such as `!r` are not part of the expression language", whole)
        outer, (start, end) = self._f_string, self._span(part.value)
        if not _is_code_of(self._text[start:end], part.value):  # as sometimes before Python 3.12
            self._f_string = self._span(whole)
        value = self.compiled(part.value)
        self._f_string = outer
        if part.format_spec is None:
            return lambda scope: operators.formatted(value(scope), "")
        specification = self.compiled(part.format_spec)
        return lambda scope: operators.formatted(value(scope), specification(scope))


def _is_code_of(text: str, node: ast.expr) -> bool:
    """Whether the text, parsed, is that node."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(text, mode="eval").body) == ast.dump(node)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
