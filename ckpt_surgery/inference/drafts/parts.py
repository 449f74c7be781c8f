"""Parts of rules: formations, moved subtrees and dropped leaves, as patterns of keys with numbers.

Parts that read the same leaves are one bundle, because only one rule can claim a leaf.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.key_patterns import KeyPattern, KeyPlace, place_of, prefix_of
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, Value, X
from ckpt_surgery.inference.keys.grids import SEPARATORS

_SEPARATOR = re.compile("[/.]")
_WORDS = re.compile(r"[^\W\d]\w*")
_XS = re.compile(r"\bxs\b")
_READ = re.compile(r"'[^']*'|\bxs\b(?:\[(?:(\d+)|(\d+):(\d+))\])?|\bx\b(?!\s*=[^=])")
"""`xs`, one of its leaves or a slice of it, and `x`, except as the name of an argument; texts in quotes."""

Reason = tuple[Evidence, str]
"""Evidence for one leaf, and a clause with details or an empty text."""


Kind = Literal["made", "drop", "fallback"]
"""Fate of the leaves that a rule claims: target leaves are made of them, perhaps of the same key; they are
dropped; or they are leaves of the target, and keep its values."""


@frozen()
class RulePart:
    """One formation, or a subtree that moves."""

    sources: tuple[KeyPlace, ...]
    """In the order of `xs`."""
    target: KeyPlace
    value: Value = X
    reasons: tuple[Reason, ...] = ()
    """One for each target leaf."""


Group = Sequence[RulePart]
"""Parts that differ only in the texts at the places of their keys."""
Bundle = Sequence[Group]
"""Groups that read the same leaves."""


def connected(parts: Iterable[RulePart]) -> list[list[RulePart]]:
    """The parts in units: no two units read the same leaf."""
    above: dict[object, object] = {}

    def root(node: object) -> object:
        while above.setdefault(node, node) != node:
            above[node] = node = above[above[node]]
        return node

    numbered = list(enumerate(parts))
    for number, part in numbered:
        for place in part.sources:
            above[root(place.text)] = root(number)
    units: dict[object, list[RulePart]] = defaultdict(list)
    for number, part in numbered:
        units[root(number)].append(part)
    return list(units.values())


def bundled(parts: Iterable[RulePart]) -> list[Bundle]:
    """The parts in bundles, one for all units whose parts have the same forms; a group for each form.

    Leaves that are kept are apart from others.
    """
    bundles: dict[object, dict[object, list[RulePart]]] = {}
    for unit in connected(parts):
        groups: dict[object, list[RulePart]] = defaultdict(list)
        for part in unit:
            patterns = frozenset(place.pattern for place in part.sources)
            keeps = part.sources == (part.target,) and part.value == X
            groups[part.target.pattern, patterns, part.value.text, keeps].append(part)
        bundle = bundles.setdefault(frozenset(groups), defaultdict(list))
        for form, some in groups.items():
            bundle[form] += some
    return [list(bundle.values()) for bundle in bundles.values()]


# --- parts of formations ----------------------------------------------------------------------------------


def made_parts(formations: Sequence[Formation], keys: Iterable[str]) -> list[RulePart]:
    """Parts of the rules that make leaves of those of the source with these keys, in the order of the target:
    the largest subtrees whose leaves all move alike, and formations."""
    uses = Counter(source for formation in formations for source in formation.sources)
    moved = {
        formation.sources[0]: formation
        for formation in formations
        if formation.value == X and len(formation.sources) == 1 and uses[formation.sources[0]] == 1
    }
    subtree: dict[str, RulePart] = {}
    waiting = [("", sorted(set(keys)))]
    while waiting:
        prefix, below = waiting.pop()
        if len(below) < 2:
            continue
        around = _around(moved, below[0], len(prefix))
        if around is not None and all(_around(moved, key, len(prefix)) == around for key in below):
            reasons = tuple((moved[key].evidence, moved[key].why) for key in below)
            subtree |= dict.fromkeys(below, RulePart((prefix_of(prefix),), prefix_of(*around), X, reasons))
            continue
        deeper: dict[str, list[str]] = defaultdict(list)
        for key in below:
            separator = _SEPARATOR.search(key, len(prefix))
            if separator:
                deeper[key[: separator.end()]].append(key)
        waiting += deeper.items()
    parts: dict[int, RulePart] = {}
    for formation in formations:
        part = subtree.get(formation.sources[0]) or part_of(formation)
        parts.setdefault(id(part), part)
    return list(parts.values())


def _around(moved: Mapping[str, Formation], key: str, length: int) -> tuple[str, str] | None:
    """Prefix and suffix that the target key adds to `key[length:]`; None if it is not such a key.

    The suffix is empty, or one component.
    """
    if key not in moved:
        return None
    target, rest = moved[key].target, key[length:]
    for end in (len(target), max(target.rfind(separator) for separator in SEPARATORS)):
        if end > 0 and target[:end].endswith(rest):
            prefix = target[: end - len(rest)]
            return (prefix, target[end:]) if not prefix or prefix.endswith(SEPARATORS) else None
    return None


def part_of(formation: Formation) -> RulePart:
    """The part of a rule that one formation is."""
    sources = tuple(map(place_of, formation.sources))
    reasons = ((formation.evidence, formation.why),)
    return RulePart(sources, place_of(formation.target), formation.value, reasons)


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

    pattern: KeyPattern | None
    """None for a rule that adds a leaf computed from leaves that it looks up."""
    outputs: tuple[DraftedOutput, ...]
    """Empty where leaves are dropped or filled."""
    claims: tuple[str, ...]
    """The keys that it claims: of the source, or for `fallback` of the target."""
    makes: int
    """Number of target leaves that it makes."""
    by: str | None = None
    when: str | None = None
    count: int = 1
    """Number of leaves that each output makes of each leaf: of values of the variable `i` of `for`."""
    reasons: tuple[Reason, ...] = ()
    """One for each leaf that it makes."""
    bundle: Bundle = ()
    """The parts that it covers."""
    kind: Kind = "made"

    @property
    def keeps(self) -> bool:
        """True if the leaves stay as they are."""
        return self.outputs == (DraftedOutput((), "x"),)

    def instead(self, kind: Kind) -> "RuleDraft":
        """The rule with another fate for the leaves that it claims."""
        makes = len(self.claims) if kind == "fallback" else 0
        return replace(self, kind=kind, outputs=(), makes=makes, reasons=())

    @property
    def words(self) -> set[str]:
        """The words of all its expressions: names of groups and tables among them."""
        texts = [self.by or "", self.when or ""]
        for output in self.outputs:
            texts += [output.value, *(piece.expression for piece in output.to if isinstance(piece, Inserted))]
        return {word for text in texts for word in _WORDS.findall(text)}

    def written(self) -> dict[str, Any]:
        """The rule in the types of JSON."""
        claim = "fill" if self.kind == "fallback" else "match"
        written: dict[str, Any] = {} if self.pattern is None else {claim: self.pattern.regex(self.words)}
        if self.when is not None:
            written["when"] = self.when
        if self.kind != "made":
            return {**written, self.kind: True}
        if self.count > 1:
            written["for"] = {"i": f"range({self.count})"}
        values = {template(output.to): output.value for output in self.outputs}
        if len(values) > 1:
            written["to"] = values
        elif any(values):
            written["to" if self.pattern is not None else "add"] = next(iter(values))
        if self.by is not None:
            written["by"] = self.by
        if len(values) == 1 and (self.outputs[0].value != "x" or self.pattern is None):
            written["value"] = self.outputs[0].value
        return written


def template(pieces: Sequence[TemplatePiece]) -> str:
    """The text of a key template."""
    return "".join(
        f"${{{piece.expression}}}"
        if isinstance(piece, Inserted)
        # A component in brackets would be a list index.
        else piece.replace("\\", "\\\\").replace("$", "$$").replace("[", "${'['}")
        for piece in pieces
    )


def looking_up(keys: Sequence[str], target: str, value: Value, reasons: Sequence[Reason]) -> RuleDraft:
    """A rule that adds one leaf, claims none, and looks up every leaf of its value."""
    sources = [f"source[{key!r}]" for key in keys]

    def replaced(match: re.Match[str]) -> str:
        if match[0].startswith("'"):
            return match[0]
        if match[0] == "x" or match[1] is not None:
            return sources[int(match[1] or 0)]
        some = sources if match[2] is None else sources[int(match[2]) : int(match[3])]
        return f"[{', '.join(some)}]"

    output = DraftedOutput((target,), _READ.sub(replaced, str(value)))
    return RuleDraft(None, (output,), (), 1, reasons=tuple(reasons))


def gathers(part: RulePart) -> bool:
    """True if the value of a part reads several leaves, as `xs`."""
    return _XS.search(part.value.text) is not None


# --- tables -----------------------------------------------------------------------------------------------


Entry = str | int


class Tables:
    """The tables that the rules so far use."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """`taken`: names that are in use already."""
        self._taken = taken
        self.tables: dict[str, dict[str, Entry]] = {}
        """All tables by name."""

    def named(self, name: str, table: Mapping[str, Entry]) -> str:
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
