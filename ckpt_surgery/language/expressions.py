"""The expression language: a closed subset of Python expressions, parsed with `ast`, never executed by it.

The tree is walked once, against an allow-list, and becomes closures; evaluating calls them. Arrays
stay lazy: what comes out is a tree of nodes. Whatever is refused is an ExpressionError that points
at the characters it means.
"""

import ast
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.language.compiler import Compiler, Evaluator, line_starts
from ckpt_surgery.language.scope import (
    CallUse,
    ExpressionError,
    Flaw,
    GroupUse,
    NameUse,
    Scope,
)
from ckpt_surgery.language.vocabulary import call_problem, function_names, unknown_name

MAX_TEXT = 4096
"""Characters of an expression."""


@dataclass(frozen=True)
class Expression:
    """A checked expression. Equal where the texts are."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    names: frozenset[str]
    """Every name that stands for a value: `x`, groups, params, sources, …; no function."""
    name_uses: tuple[NameUse, ...] = field(compare=False, repr=False)
    calls: tuple[CallUse, ...] = field(compare=False, repr=False)
    groups: tuple[GroupUse, ...] = field(compare=False, repr=False)
    evaluator: Evaluator = field(compare=False, repr=False)

    @property
    def single_name(self) -> str | None:
        """The name that is the whole expression, if that is all it is."""
        return self.tree.id if isinstance(self.tree, ast.Name) else None

    def evaluate(self, scope: Scope) -> Any:
        """The value: str, int, float, bool, None, list, tuple, range, Array, Series, Table, ….

        Reads no data. Raises ExpressionError, whatever is wrong.
        """
        return self.evaluator(scope)


def parse(text: str) -> Expression:
    """Parse and check the syntax of an expression. Raises ExpressionError where it is not in the language.

    Names are not looked up: see `check`.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of {len(text)} characters; the limit is {MAX_TEXT}", 0, 1)
    lead = len(text) - len(text.lstrip())
    tree = _python_tree(text[lead:].rstrip(), lead)
    parser = Compiler(text, lead)
    evaluator = parser.compiled(tree)
    return Expression(
        text,
        tree,
        frozenset(use.name for use in parser.name_uses),
        tuple(parser.name_uses),
        tuple(parser.calls),
        tuple(parser.groups),
        evaluator,
    )


def _python_tree(text: str, lead: int) -> ast.expr:
    if not text:
        raise ExpressionError("the expression is empty", 0, 1)
    try:
        with warnings.catch_warnings():
            # A warning here is about an escape such as '\d', which will be an error in later versions.
            warnings.simplefilter("error")
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        start, end = _syntax_span(error, text)
        raise ExpressionError(*_syntax_sentence(error), start + lead, end + lead) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("the expression is nested too deeply, or is not text", lead, lead + 1) from None


def _syntax_span(error: SyntaxError, text: str) -> tuple[int, int]:
    """Python tells of the inside of an f-string by a text of its own: then it is the whole."""
    if error.msg.startswith("f-string") or error.offset is None or error.lineno is None:
        return 0, len(text)
    if error.offset == 0:  # the text ends too early
        return len(text) - 1, len(text)
    starts = line_starts(text)
    line = starts[min(error.lineno, len(starts)) - 1]
    start = max(0, min(line + error.offset - 1, len(text) - 1))
    return start, start + 1


def _syntax_sentence(error: SyntaxError) -> tuple[str]:
    if "invalid escape sequence" in error.msg:
        return (f"{error.msg}; write the text raw, r'…', or double the backslash",)
    return (f"not an expression: {error.msg}",)


def check(expression: Expression, known: Iterable[str]) -> list[Flaw]:
    """What can be told without values: unknown names and functions, and calls that do not fit."""
    names = frozenset(known)
    flaws = [
        Flaw(unknown_name(use.name, names), use.start, use.end)
        for use in expression.name_uses
        if use.name not in names
    ]
    for call in expression.calls:
        problem = call_problem(call.name, call.positional, call.keywords)
        if problem is not None:
            unknown = call.name not in function_names()
            flaws.append(Flaw(problem, call.start, call.name_end if unknown else call.end))
    return sorted(flaws, key=lambda flaw: flaw.start)
