"""What rules are made of: formations, moved subtrees and dropped leaves, as patterns of keys with numbers.

Parts with the same patterns and value are one group; groups that read the same leaves are one
bundle, because only one rule can claim a leaf.
"""

import enum
import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.key_patterns import KeyPattern, KeyPlace
from ckpt_surgery.inference.expressions.formations import Evidence, Value, X

_XS = re.compile(r"\bxs\b(?:\[(\d+)\])?")
_X = re.compile(r"'[^']*'|\bx\b(?!\s*=[^=])")
_PLAIN = re.compile(r"[\w.]+|\w+\(\w+\)|\w+\[[^\[\]]*\]")
_AFTER = "]),:"
"""Characters after a hole that hold an expression together without parentheses."""

Reason = tuple[Evidence, str]
"""Why one leaf counts as decided: the evidence, and a clause that says more or nothing."""


class Kind(enum.StrEnum):
    """What a rule does with the leaves that it claims."""

    MADE = "made"
    """Leaves of the target are made of them, or they get other names."""
    KEPT = "kept"
    DROPPED = "dropped"
    FILLED = "filled"
    """Leaves of the target, which keep the target's own value."""


@frozen()
class RulePart:
    """One formation, or what befalls one leaf or subtree otherwise."""

    kind: Kind
    sources: tuple[KeyPlace, ...]
    """In the order of `xs`. For `FILLED`, keys of the target."""
    target: KeyPlace | None
    """None where nothing is made."""
    value: Value = X
    reasons: tuple[Reason, ...] = ()
    """One for each leaf that is made."""
    looked_up: tuple[KeyPlace | None, ...] = ()
    """Where the rule claims one source and looks the others up: all of `xs`, None for the one claimed."""


Group = Sequence[RulePart]
"""Parts that differ in what stands at the places of their keys."""
Bundle = Sequence[Group]
"""Groups that read the same leaves."""


def grouped(parts: Iterable[RulePart]) -> Bundle:
    """The parts in groups, in the order of their first parts."""
    groups: dict[object, list[RulePart]] = defaultdict(list)
    for part in parts:
        patterns = tuple(dict.fromkeys(place.pattern for place in part.sources))
        target = None if part.target is None else part.target.pattern
        groups[part.kind, target, patterns, part.value.text, bool(part.looked_up)].append(part)
    return list(groups.values())


def connected(groups: Iterable[Group]) -> list[Bundle]:
    """The groups in bundles: no two bundles read the same leaf."""
    above: dict[object, object] = {}

    def root(one: object) -> object:
        while above.setdefault(one, one) != one:
            above[one] = one = above[above[one]]
        return one

    numbered = list(enumerate(groups))
    for number, group in numbered:
        for key in (place.text for part in group for place in part.sources):
            above[root(key)] = root(number)
    found: dict[object, list[Group]] = defaultdict(list)
    for number, group in numbered:
        found[root(number)].append(group)
    return list(found.values())


# --- rules ------------------------------------------------------------------------------------------------


@frozen()
class Inserted:
    """`${expression}` in the template of a key."""

    expression: str


TemplatePiece = str | Inserted
"""Text that stands for itself, or an expression."""


@frozen()
class DraftedOutput:
    """One key template of a rule, and the value of the leaves that it names."""

    to: tuple[TemplatePiece, ...]
    """Empty where the leaves keep their keys."""
    value: str
    formula: str = ""
    """The value before leaves that it looks up are put into it."""


@frozen()
class RuleDraft:
    """One rule of a draft."""

    kind: Kind
    pattern: KeyPattern | None
    """None for a rule that adds a leaf computed from leaves that it looks up."""
    outputs: tuple[DraftedOutput, ...]
    """Empty where leaves keep their keys and values, are dropped, or filled."""
    claims: tuple[str, ...]
    """The keys that it claims: of the source, or for `FILLED` of the target."""
    makes: int = 0
    """How many leaves of the target it makes."""
    by: str | None = None
    when: str | None = None
    loops: tuple[tuple[str, str], ...] = ()
    """The variables of `for`, with their ranges."""
    reasons: tuple[Reason, ...] = ()
    """One for each leaf that it makes."""
    bundle: Bundle = ()
    """What it is made of."""


def joined_text(pieces: Sequence[TemplatePiece]) -> tuple[TemplatePiece, ...]:
    """The same pieces, texts that are next to each other as one, and empty ones left out."""
    found: list[TemplatePiece] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece != "":
            found.append(piece)
    return tuple(found)


# --- values -----------------------------------------------------------------------------------------------


def gathers(text: str) -> bool:
    """Whether a value speaks of several leaves."""
    return _XS.search(text) is not None


def takes_apart(text: str) -> bool:
    """Whether a value speaks of several leaves one by one, as `xs[0]` and `xs[1]`."""
    found = _XS.findall(text)
    return bool(found) and all(found)


def with_holes(text: str, expressions: Sequence[str]) -> str:
    """The value with an expression for each of its holes."""
    found = ""
    parts = list(string.Formatter().parse(text))
    for at, (literal, field, _, _) in enumerate(parts):
        found += literal
        if field is None:
            continue
        following = parts[at + 1][0] if at + 1 < len(parts) else ""
        found += _held(found, expressions[int(field)], following)
    return found


def _held(before: str, expression: str, after: str) -> str:
    """The expression, in parentheses where its neighbours could tear it apart."""
    alone = not before or before[-1] in "[(,:=" or before.endswith(", ")
    ends = not after or after[0] in _AFTER
    return expression if _PLAIN.fullmatch(expression) or (alone and ends) else f"({expression})"


def with_sources(text: str, sources: Sequence[str]) -> str:
    """The value with an expression for each leaf of `xs`."""

    def replaced(match: re.Match[str]) -> str:
        return f"[{', '.join(sources)}]" if match[1] is None else sources[int(match[1])]

    return _XS.sub(replaced, text)


def read_alone(text: str, source: str) -> str:
    """The value with an expression for `x`; what stands in quotes, and names of arguments, are left alone."""
    return _X.sub(lambda match: source if match[0] == "x" else match[0], text)


Entry = str | int
Table = Mapping[str, Entry]


class Tables:
    """The tables that rules have asked for so far."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """`taken`: names that stand for something else."""
        self._taken = taken
        self._tables: dict[str, dict[str, Entry]] = {}

    def named(self, name: str, table: Table, alone: bool = False) -> str:
        """The name of a table that has these entries, and perhaps others: an earlier one where it agrees.

        Its name is `name`, with a number where that is another table. `alone`: whether it has these only.
        """
        number, free = 1, name
        while free in self._taken or not self._agrees(free, table, alone):
            number += 1
            free = f"{name}{number}"
        self._tables.setdefault(free, {}).update(table)
        return free

    def _agrees(self, name: str, table: Table, alone: bool) -> bool:
        known = self._tables.get(name)
        return known is None or (
            not alone and all(known.get(w, entry) == entry for w, entry in table.items())
        )

    def items(self) -> Mapping[str, Table]:
        """All tables by name."""
        return self._tables
