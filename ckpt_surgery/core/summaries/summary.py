"""Content of a short representation, before it becomes text or HTML."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SummaryRow:
    """One line: leaves that share a pattern, or anything else there can be very many of."""

    word: str
    """Fate of the leaves: `renamed`, `only in A`; empty if they have none."""
    key: str
    """Pattern of their keys, or `old → new`; any other text."""
    what: str = ""
    """Their content: `48 × bf16[2048,8192]`."""
    why: str = ""
    """The rule, or the reason."""
    count: int = 1
    """Number of leaves that the line stands for."""
    level: int = 0
    """Number of lines above that this one is inside of."""


@dataclass(frozen=True)
class Summary:
    """A result in a few lines. Its texts may hold any character and be of any length."""

    about: str
    """Text after the name of the class on the first line."""
    facts: Sequence[str] = ()
    """Lines before the rows."""
    rows: Sequence[SummaryRow] = ()
    closing: Sequence[str] = ()
    """Lines after the rows."""
    tree: Callable[[], Sequence[SummaryRow]] | None = None
    """Makes the same rows as a tree, which HTML shows in their place; None where they are no listing."""
    noun: tuple[str, str] = ("leaf", "leaves")
    """Nouns for the things that rows count, singular and plural."""

    def more(self, left_out: Sequence[SummaryRow]) -> str:
        """The line in place of rows that are not shown: `… and 1,234 more leaves`."""
        count = sum(row.count for row in left_out)
        return f"… and {count:,} more {self.noun[count != 1]}"


def both_ends(rows: Sequence[SummaryRow], most: int) -> tuple[Sequence[SummaryRow], ...]:
    """The first rows, those that are left out, and the last ones: `most` of them at each end."""
    if len(rows) <= 2 * most + 1:
        return rows, (), ()
    return rows[:most], rows[most : len(rows) - most], rows[len(rows) - most :]


LINES = ("line", "lines")
"""Nouns for rows that are lines of a text."""


def text_rows(text: str) -> list[SummaryRow]:
    """The lines of a text, such as a recipe."""
    return [SummaryRow("", line) for line in text.splitlines()]


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Each warning, with its number where there are several: a representation may only show the first."""
    several = len(warnings) > 1
    numbers = (f" {n} of {len(warnings)}" if several else "" for n in itertools.count(1))
    return [f"Warning{number}: {warning}" for number, warning in zip(numbers, warnings, strict=False)]
