"""The expression language: a closed subset of Python expressions.

The text is parsed with `ast`, and the syntax tree is compiled to closures against an allow-list; Python never
executes it. Arrays stay lazy: the value of an expression is a tree of nodes, and no data is read for it.
Whatever is refused is an ExpressionError that points at the characters in question.
"""

import ast
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import regex

from ckpt_surgery.core.errors import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions.compiler import Compiler, Evaluator, errors_at, line_starts
from ckpt_surgery.language.expressions.naming import unknown_name
from ckpt_surgery.language.expressions.scope import ExpressionError, LetError, Scope, Use, bounded_together

MAX_TEXT = 1 << 15  # Limit on the characters of an expression


@dataclass(frozen=True)
class Expression:
    """A checked expression. Two expressions are equal if their texts are."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)  # Python's syntax tree
    notes: Compiler = field(compare=False, repr=False)
    """Names and groups that it uses, wrong calls, and levels of nesting."""
    evaluate: Evaluator = field(compare=False, repr=False)
    """The value in a scope: str, int, float, bool, None, list, tuple, range, Array, Series, Table, ….

    Reads no data. Raises ExpressionError for any failure.
    """

    @cached_property
    def names(self) -> frozenset[str]:
        """All names that stand for values: `x`, groups, params, sources; those of functions are left out."""
        return frozenset(str(use.name) for use in self.notes.name_uses)

    @property
    def single_name(self) -> str | None:
        """The name, if the expression is a single name; otherwise None."""
        return self.tree.id if isinstance(self.tree, ast.Name) else None


def parse(text: str) -> Expression:
    """Parse an expression. Raises ExpressionError for text that is not in the language.

    Names are not looked up; see `check`.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of {len(text)} characters; the limit is {MAX_TEXT}", 0, 1)
    lead, code = len(text) - len(text.lstrip()), text.strip()
    if not code:
        raise ExpressionError("the expression is empty", 0, 1)
    try:
        with warnings.catch_warnings():
            # A warning here is about an escape such as '\d', which will be an error in later versions.
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", r".*invalid escape sequence '\\/'|\"\\/\" is an invalid")
            tree = ast.parse(code, mode="eval").body
    except SyntaxError as error:
        start, end = _syntax_span(error, code)
        message = f"not an expression: {error.msg}"
        if "invalid escape sequence" in error.msg:
            message = f"{error.msg}; write the text raw, r'…', or double the backslash"
        raise ExpressionError(message, start + lead, end + lead) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("the expression is nested too deeply, or is not text", lead, lead + 1) from None
    compiler = Compiler(text, lead)
    return Expression(text, tree, compiler, compiler.compiled(tree))


def _syntax_span(error: SyntaxError, text: str) -> tuple[int, int]:
    """The characters that a SyntaxError points at: all of them where it comes from inside an f-string.

    Python gives such an error positions in a text of its own.
    """
    if error.msg.startswith("f-string") or error.offset is None or error.lineno is None:
        return 0, len(text)
    if error.offset == 0:  # the text ends too early
        return len(text) - 1, len(text)
    starts = line_starts(text)
    line = starts[min(error.lineno, len(starts)) - 1]
    start = max(0, min(line + error.offset - 1, len(text) - 1))
    return start, start + 1


def check(
    expression: Expression,
    known: Iterable[str],
    sources: Sequence[str] = (),
    pattern: regex.Pattern[str] | None = None,
) -> list[ExpressionError]:
    """Errors that show without values: unknown names, functions and groups, calls with wrong arguments.

    `sources`: names of the recipe's sources, for messages. `pattern` has the groups of `g`, if it is known.
    """
    names = frozenset(known)
    errors = list(expression.notes.wrong_calls)
    for use in expression.notes.name_uses:
        if use.name not in names:
            message = unknown_name(str(use.name), names, sources)
            errors.append(ExpressionError(message, use.start, use.end, code=Code.UNKNOWN_NAME))
    uses = expression.notes.groups if "g" in names else ()
    groups = [error for use in uses for error in check_group(use, pattern)]
    return [*sorted(errors, key=lambda error: error.start), *groups]


def check_group(use: Use, pattern: regex.Pattern[str] | None) -> list[ExpressionError]:
    """The error of `g[3]`, or of `\\3` in a template, where the regular expression has two groups."""
    group = use.name
    if pattern is None:
        message = f"no regular expression here could have a group {group!r}"
    elif group in pattern.groupindex or (isinstance(group, int) and 0 <= group <= pattern.groups):
        return []
    else:
        message = (
            f"the regular expression has no group {group!r}{did_you_mean(str(group), pattern.groupindex)}"
        )
    return [ExpressionError(message, use.start, use.end, code=Code.NO_GROUP)]


class LetNames(dict[str, Any]):
    """The names that the value of one output sees. Looking up a name of `let` evaluates it."""

    def __init__(self, scope: Scope, let: Mapping[str, Expression]):
        """`scope`: that of the output, but for `let`."""
        super().__init__(scope.names)
        self._let = let
        self._scope = scope

    def __missing__(self, name: str) -> Any:
        """Raises KeyError for an unknown name, LetError where an entry fails."""
        expression = self._let[name]
        span = (0, len(expression.text))
        try:
            # A scope that is kept would be a cycle, and the program collects no garbage while it plans.
            scope = replace(self._scope, names=self)
            value = errors_at(span, lambda scope: bounded_together(expression.evaluate(scope)))(scope)
        except ExpressionError as error:
            raise (error if isinstance(error, LetError) else LetError(name, error)) from None
        self[name] = value
        return value
