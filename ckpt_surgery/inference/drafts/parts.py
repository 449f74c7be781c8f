"""Parts of rules: formations, moved subtrees and dropped leaves, as patterns of keys with numbers.

Parts with the same patterns and value are one group; groups that read the same leaves are one
bundle, because only one rule can claim a leaf.
"""

import enum
import itertools
import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.key_patterns import KeyPattern, KeyPlace
from ckpt_surgery.inference.expressions.formations import Evidence, Value, X

_XS = re.compile(r"\bxs\b(?:\[(?:(\d+)|(\d+):(\d+))\])?")
"""`xs`, one of its leaves, or a slice of it."""
_X = re.compile(r"'[^']*'|\bx\b(?!\s*=[^=])")
_PLAIN = re.compile(r"[\w.]+|\w+\(\w+\)|\w+\[[^\[\]]*\]")
_AFTER = "]),:"
"""Characters after a hole before which an expression needs no parentheses."""

Reason = tuple[Evidence, str]
"""Evidence for one leaf, and a clause with details or an empty text."""


class Kind(enum.StrEnum):
    """Fate of the leaves that a rule claims."""

    MADE = "made"
    """They are kept or renamed, or target leaves are computed from them."""
    DROPPED = "dropped"
    FILLED = "filled"
    """Target leaves that keep the target's own value."""


@frozen()
class RulePart:
    """One formation, or the fate of one leaf or subtree."""

    kind: Kind
    sources: tuple[KeyPlace, ...]
    """In the order of `xs`. For `FILLED`, keys of the target."""
    target: KeyPlace | None
    """None if the leaves are dropped or filled."""
    value: Value = X
    reasons: tuple[Reason, ...] = ()
    """One for each target leaf."""


Group = Sequence[RulePart]
"""Parts that differ only in the texts at the places of their keys."""
Bundle = Sequence[Group]
"""Groups that read the same leaves."""


def grouped(parts: Iterable[RulePart]) -> Bundle:
    """The parts in groups, in the order of their first parts; leaves that are kept are apart from others."""
    groups: dict[object, list[RulePart]] = defaultdict(list)
    for part in parts:
        patterns = tuple(dict.fromkeys(place.pattern for place in part.sources))
        target = part.target and part.target.pattern
        keeps = part.sources == (part.target,) and part.value == X
        groups[part.kind, target, patterns, part.value.text, keeps].append(part)
    return list(groups.values())


def connected(groups: Iterable[Group]) -> list[Bundle]:
    """The groups in bundles: no two bundles read the same leaf."""
    above: dict[object, object] = {}

    def root(node: object) -> object:
        while above.setdefault(node, node) != node:
            above[node] = node = above[above[node]]
        return node

    numbered = list(enumerate(groups))
    for number, group in numbered:
        for key in (place.text for part in group for place in part.sources):
            above[root(key)] = root(number)
    bundles: dict[object, list[Group]] = defaultdict(list)
    for number, group in numbered:
        bundles[root(number)].append(group)
    return list(bundles.values())


# --- rules ------------------------------------------------------------------------------------------------


@frozen()
class Inserted:
    """`${expression}` in the template of a key."""

    expression: str


TemplatePiece = str | Inserted
"""Literal text, or an expression."""


@frozen()
class DraftedOutput:
    """One key template of a rule, and the value of the leaves that it names."""

    to: tuple[TemplatePiece, ...]
    """Empty where the leaves keep their keys."""
    value: str


@frozen()
class RuleDraft:
    """One rule of a draft."""

    kind: Kind
    pattern: KeyPattern | None
    """None for a rule that adds a leaf computed from leaves that it looks up."""
    outputs: tuple[DraftedOutput, ...]
    """Empty where leaves are dropped or filled."""
    claims: tuple[str, ...]
    """The keys that it claims: of the source, or for `FILLED` of the target."""
    makes: int = 0
    """Number of target leaves that it makes."""
    by: str | None = None
    when: str | None = None
    loops: tuple[tuple[str, str], ...] = ()
    """The variables of `for`, with their ranges."""
    reasons: tuple[Reason, ...] = ()
    """One for each leaf that it makes."""
    bundle: Bundle = ()
    """The parts that it covers."""

    @property
    def keeps(self) -> bool:
        """True if the leaves stay as they are."""
        return self.outputs == (DraftedOutput((), "x"),)


def looking_up(keys: Sequence[str], target: str, value: Value, reasons: Sequence[Reason]) -> RuleDraft:
    """A rule that adds one leaf, claims none, and looks up every leaf of its value."""
    sources = [f"source[{key!r}]" for key in keys]
    text = str(value)
    if gathers(text):

        def replaced(match: re.Match[str]) -> str:
            if match[1] is not None:
                return sources[int(match[1])]
            some = sources if match[2] is None else sources[int(match[2]) : int(match[3])]
            return f"[{', '.join(some)}]"

        text = _XS.sub(replaced, text)
    else:  # `x`, except in quotes and as the name of an argument
        text = _X.sub(lambda match: sources[0] if match[0] == "x" else match[0], text)
    return RuleDraft(Kind.MADE, None, (DraftedOutput((target,), text),), (), 1, reasons=tuple(reasons))


def joined_text(pieces: Sequence[TemplatePiece]) -> tuple[TemplatePiece, ...]:
    """Merge adjacent texts and leave out empty ones."""
    merged: list[TemplatePiece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


# --- values -----------------------------------------------------------------------------------------------


def gathers(text: str) -> bool:
    """True if a value reads several leaves, as `xs`."""
    return _XS.search(text) is not None


def with_holes(text: str, expressions: Sequence[str]) -> str:
    """Fill the holes of a value with these expressions.

    They are in parentheses where operators around them could bind tighter.
    """
    filled = ""
    parts = list(string.Formatter().parse(text))
    following = [literal for literal, *_ in parts[1:]] + [""]
    for (literal, field, _, _), after in zip(parts, following, strict=True):
        filled += literal
        if field is not None:
            expression = expressions[int(field)]
            starts = not filled or filled.endswith(("[", "(", ",", ":", "=", ", "))
            alone = starts and (not after or after[0] in _AFTER)
            filled += expression if alone or _PLAIN.fullmatch(expression) else f"({expression})"
    return filled


Entry = str | int
Table = Mapping[str, Entry]


class Tables:
    """The tables that the rules so far use."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """`taken`: names that are in use already."""
        self._taken = taken
        self.tables: dict[str, dict[str, Entry]] = {}
        """All tables by name."""

    def named(self, name: str, table: Table) -> str:
        """Add these entries to the first table of this name that has no others for these words; its name.

        Further tables are called `name` with a number.
        """
        for free in itertools.chain([name], (f"{name}{number}" for number in itertools.count(2))):
            known = self.tables.get(free, {})
            agrees = all(known.get(word, entry) == entry for word, entry in table.items())
            if agrees and free not in self._taken:
                break
        self.tables.setdefault(free, {}).update(table)
        return free
