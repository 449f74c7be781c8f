"""Spans of the nodes of a syntax tree in the text of their expression."""

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ckpt_surgery.language.expressions.scope import ExpressionError

Span = tuple[int, int]  # Character offsets in the text of an expression: start, and exclusive end


def line_starts(text: str) -> list[int]:
    """The offset of each line, as Python counts lines."""
    return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]


class Spans:
    """The spans of the nodes of one expression."""

    def __init__(self, text: str, lead: int):
        """`lead`: white space before the expression, which `ast` did not see."""
        self._text, self._lead = text, lead
        self._starts = line_starts(text[lead:])
        self._instead: Span | None = None
        """Span of the f-string around the node, where Python's positions inside it are wrong."""

    def of(self, node: ast.expr | ast.keyword) -> Span:
        """The characters of a node. `ast` counts lines, and bytes of UTF-8 in them."""
        if self._instead is not None:
            return self._instead
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return self._offset(node.lineno, node.col_offset), end

    def _offset(self, line: int, column: int) -> int:
        start = self._lead + self._starts[min(line, len(self._starts)) - 1]
        rest = self._text[start : start + column]
        if rest.isascii():
            return start + min(column, len(rest))
        return start + len(rest.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def refuse(self, message: str, node: ast.expr | ast.keyword) -> NoReturn:
        """Raises the ExpressionError that points at a node."""
        raise ExpressionError(message, *self.of(node))

    @contextmanager
    def inside(self, f_string: ast.JoinedStr, node: ast.expr) -> Iterator[None]:
        """A context in which a value of an f-string is compiled.

        Errors point at all of it where Python's positions inside are wrong, as sometimes before Python 3.12.
        """
        outer = self._instead
        start, end = self.of(node)
        if not _is_code_of(self._text[start:end], node):
            self._instead = self.of(f_string)
        try:
            yield
        finally:
            self._instead = outer


def _is_code_of(text: str, node: ast.expr) -> bool:
    """Whether the text, parsed, is that node."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(text, mode="eval").body) == ast.dump(node)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
