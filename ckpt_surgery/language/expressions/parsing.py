"""The expression language: a closed subset of Python expressions.

The text is parsed with `ast`, and the syntax tree is compiled to closures against an allow-list; Python never
executes it. Arrays stay lazy: the value of an expression is a tree of nodes, and no data is read for it.
Whatever is refused is an ExpressionError that points at the characters in question.
"""

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import regex

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions.compiler import Compiler, Evaluator, errors_at
from ckpt_surgery.language.expressions.naming import unknown_name
from ckpt_surgery.language.expressions.scope import (
    ExpressionError,
    GroupUse,
    LetError,
    Scope,
    bounded_together,
)
from ckpt_surgery.language.expressions.spans import line_starts

MAX_TEXT = 1 << 15
"""Limit on the characters of an expression."""


@dataclass(frozen=True)
class Expression:
    """A checked expression. Two expressions are equal if their texts are."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    """Python's syntax tree."""
    notes: Compiler = field(compare=False, repr=False)
    """Names and groups that it uses, wrong calls, and levels of nesting."""
    evaluator: Evaluator = field(compare=False, repr=False)
    """Computes the value."""

    @cached_property
    def names(self) -> frozenset[str]:
        """All names that stand for values: `x`, groups, params, sources; those of functions are left out."""
        return frozenset(use.name for use in self.notes.name_uses)

    @property
    def single_name(self) -> str | None:
        """The name, if the expression is a single name; otherwise None."""
        return self.tree.id if isinstance(self.tree, ast.Name) else None

    def evaluate(self, scope: Scope) -> Any:
        """The value: str, int, float, bool, None, list, tuple, range, Array, Series, Table, ….

        Reads no data. Raises ExpressionError for any failure.
        """
        return self.evaluator(scope)


def parse(text: str) -> Expression:
    """Parse an expression. Raises ExpressionError for text that is not in the language.

    Names are not looked up; see `check`.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of {len(text)} characters; the limit is {MAX_TEXT}", 0, 1)
    lead = len(text) - len(text.lstrip())
    tree = _python_tree(text[lead:].rstrip(), lead)
    compiler = Compiler(text, lead)
    return Expression(text, tree, compiler, compiler.compiled(tree))


def _python_tree(text: str, lead: int) -> ast.expr:
    if not text:
        raise ExpressionError("the expression is empty", 0, 1)
    try:
        with warnings.catch_warnings():
            # A warning here is about an escape such as '\d', which will be an error in later versions.
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", r".*invalid escape sequence '\\/'|\"\\/\" is an invalid")
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        start, end = _syntax_span(error, text)
        message = f"not an expression: {error.msg}"
        if "invalid escape sequence" in error.msg:
            message = f"{error.msg}; write the text raw, r'…', or double the backslash"
        raise ExpressionError(message, start + lead, end + lead) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("the expression is nested too deeply, or is not text", lead, lead + 1) from None


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
    unknown = [
        ExpressionError(unknown_name(use.name, names, sources), use.start, use.end, code=Code.UNKNOWN_NAME)
        for use in expression.notes.name_uses
        if use.name not in names
    ]
    uses = expression.notes.groups if "g" in names else ()
    groups = [error for use in uses for error in check_group(use, pattern)]
    return [*sorted((*unknown, *expression.notes.wrong_calls), key=lambda error: error.start), *groups]


def check_group(use: GroupUse, pattern: regex.Pattern[str] | None) -> list[ExpressionError]:
    """The error of `g[3]`, or of `\\3` in a template, where the regular expression has two groups."""
    if pattern is None:
        message = f"no regular expression here could have a group {use.group!r}"
    elif use.group in pattern.groupindex or (isinstance(use.group, int) and 0 <= use.group <= pattern.groups):
        return []
    else:
        guess = did_you_mean(str(use.group), pattern.groupindex)
        message = f"the regular expression has no group {use.group!r}{guess}"
    return [ExpressionError(message, use.start, use.end, code=Code.NO_GROUP)]


class LetNames(dict[str, Any]):
    """The names that the value of one output sees. Looking up a name of `let` evaluates it."""

    def __init__(
        self,
        names: Mapping[str, Any],
        let: Mapping[str, Expression],
        leaf_key: str,
        count: Callable[[str], int] | None,
    ):
        """`leaf_key` and `count`: those of the output's `Scope`."""
        super().__init__(names)
        self._let = let
        self._leaf_key = leaf_key
        self._count = count

    def __missing__(self, name: str) -> Any:
        """Raises KeyError for an unknown name, LetError where an entry fails."""
        expression = self._let[name]
        evaluate = errors_at(
            (0, len(expression.text)), lambda scope: bounded_together(expression.evaluate(scope))
        )
        try:
            value = self[name] = evaluate(Scope(self, self._leaf_key, self._count))
        except LetError:
            raise
        except ExpressionError as error:
            raise LetError(name, error) from None
        return value
