"""Finds the leaves that a target lacks elsewhere in the sources: below another prefix, or without `/value`.

A training state wraps the params in `params`, an optimizer in `target`, and modules of Flax NNX put `value`
behind each key. Where source and target differ in that alone, few rules bring them together.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import regex

from ckpt_surgery.core.folding import FEW, few_keys
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.optimizer_states import OPTIMIZER, STATES
from ckpt_surgery.language.yaml.parsing import quoted
from ckpt_surgery.planner.entries import HAS_ARRAY, Tree

PARAMS = "params"
"""The component below which training states have what is trained."""
VALUE = f"{SEPARATOR}value"
"""Last component of the keys of variables in Flax NNX."""
MOST_ALIKE = 8
"""Number of source leaves with the same end of their keys that are looked at for one key of the target."""
MOST_MOVES = 32
"""Number of moves that are tried on all keys."""
_CONTAINERS = STATES | (OPTIMIZER - {"mu", "nu", "v_row", "v_col"}) | {"state"}
"""Components of keys within an optimizer's state that say nothing about what lies below."""
_NUMBER = re.compile(r"\d+")
_INDEX = re.compile(r"(?:^|/)\[[0-9]+\](?:/|$)")
"""A component that templates take for the index of a list."""


class Ends(NamedTuple):
    """Start and end of keys, such as `params/` and `/value`; the start of the root is empty."""

    start: str
    end: str


@dataclass(frozen=True)
class Move:
    """New start and end of keys, as a rule that gives leaves of a target."""

    name: str
    """The source that the leaves are of."""
    source: Ends
    """Ends of the keys in the source."""
    target: Ends
    """Ends of the keys in the target."""
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Key of the source leaf by the key of the target's."""
    is_first: bool = field(default=False, compare=False)
    """Whether the leaves are of the source that rules claim leaves of unless they name another one."""
    pattern: str = field(default="", compare=False)
    """`match` of the rule."""

    @property
    def names(self) -> list[str]:
        """The components that the keys start with in the source."""
        return self.source.start.split(SEPARATOR)[:-1]

    @property
    def affinity(self) -> int:
        """Number of components of the new start that are in the old one, or the name of the source.

        One more where both have the same numbers: `layer_3/` of `3/`.
        """
        known, numbers = {self.name, *self.names}, _NUMBER.findall(self.target.start)
        same = bool(numbers) and numbers == _NUMBER.findall(self.source.start)
        return sum(name in known for name in self.target.start.split(SEPARATOR)[:-1]) + same

    def rivals(self, other: "Move") -> bool:
        """Whether two candidates give one key of the target from different leaves."""
        shared = self.given.keys() & other.given.keys()
        return any((self.name, self.given[key]) != (other.name, other.given[key]) for key in shared)

    @property
    def rule(self) -> str:
        """The rule as YAML on one line."""
        fields = [f"match: {quoted(self.pattern)}"]
        if self.source != self.target:
            start, end = (text.replace("\\", "\\\\").replace("$", "$$") for text in self.target)
            fields.append("to: " + quoted(rf"{start}\1{end}"))
        fields += [] if self.is_first else [f"source: {self.name}"]
        return f"{{{', '.join(fields)}}}"


def _replaced(key: str, old: Ends, new: Ends) -> str | None:
    """The key with other ends; None where it has not the old ones, or nothing between."""
    if not (key.startswith(old.start) and key.endswith(old.end)):
        return None
    middle = key[len(old.start) : len(key) - len(old.end)]
    return f"{new.start}{middle}{new.end}" if middle else None


def suggestions(
    missing: Sequence[str], leaves: Mapping[str, Leaf], offered: Mapping[str, Tree]
) -> list[Move]:
    """Rules that give missing leaves of a target, in the order to write them; none where several would do.

    `offered`: unclaimed leaves by source, the first one first. Rules leave the target's other `leaves` alone.
    """
    rules: list[Move] = []
    left = list(missing)
    first, lacking = next(iter(offered)), set(missing)
    placed = {(first, text) for text in offered[first] if text in leaves and text not in lacking}
    for _ in range(2 * FEW):
        free = {
            name: {text: entry for text, entry in tree.items() if (name, text) not in placed}
            for name, tree in offered.items()
        }
        ranked = _candidates(left, leaves, free)
        if not ranked or len(rules) == FEW:
            break
        rivals = [other for other in ranked if other.rivals(ranked[0])]
        best = _preferred([ranked[0], *rivals])
        choices = [] if best is None else _with(rules, best)
        rules = next((some for some in choices if _work(some, missing, leaves, offered)), rules)
        placed |= {(rule.name, origin) for rule in rules for origin in rule.given.values()}
        decided = {key for candidate in (best or ranked[0], *rivals) for key in candidate.given}
        left = [key for key in left if key not in decided]
    return rules


def _candidates(
    missing: Sequence[str], leaves: Mapping[str, Leaf], offered: Mapping[str, Tree]
) -> list[Move]:
    """The moves that give missing leaves, most of which fit; those that give the most come first.

    One leaf alone is no sign where its name is all that both keys share.
    """
    candidates = []
    for move in _moves(missing, offered):
        tree = offered[move.name]
        pairs = ((key, _replaced(key, move.target, move.source)) for key in missing)
        given = {key: origin for key, origin in pairs if origin is not None and origin in tree}
        fitting = sum(fits(leaves[key], tree[origin].leaf) for key, origin in given.items())
        names = [key[len(move.target.start) :].removesuffix(move.target.end) for key in given]
        is_weak = move.source.start and move.target.start and len(names) == 1 and SEPARATOR not in names[0]
        if 2 * fitting > len(given) and not is_weak:
            candidates.append(replace(move, given=given, is_first=move.name == next(iter(offered))))
    return sorted(candidates, key=lambda rule: (-len(rule.given), len(rule.names), rule.source.end))


def _moves(missing: Sequence[str], offered: Mapping[str, Tree]) -> list[Move]:
    """The moves that give the most of these keys: each shares the longest end with a source key."""
    known: dict[str, list[tuple[str, Ends]]] = defaultdict(list)
    for name, tree in offered.items():
        for tail, ends in itertools.chain.from_iterable(map(_divisions, tree)):
            known[tail].append((name, ends))
    moves: Counter[Move] = Counter()
    for key in missing:
        nearest: dict[str, list[Move]] = {}
        for tail, ends in _divisions(key):
            if not nearest.get(ends.end):
                found = known.get(tail, ())
                alike = (Move(name, old, ends) for name, old in found if are_alike(old.start, ends.start))
                nearest[ends.end] = list(itertools.islice(alike, MOST_ALIKE))
        moves.update(itertools.chain.from_iterable(nearest.values()))
    return [move for move, _ in moves.most_common(MOST_MOVES)]


def _divisions(key: str) -> Iterator[tuple[str, Ends]]:
    """A key cut before each of its components, the first one first: tail, and the ends around it."""
    for end in (VALUE, "") if key.endswith(VALUE) else ("",):
        bare = key.removesuffix(end)
        for start in ("", *_prefixes(bare)):
            yield bare[len(start) :], Ends(start, end)


def fits(wanted: Leaf, given: Leaf) -> bool:
    """True if a source leaf can take the place of the target's: same shape, or same kind without one."""
    if wanted.kind in HAS_ARRAY and given.kind in HAS_ARRAY:
        return wanted.spec is not None and given.spec is not None and wanted.spec.shape == given.spec.shape
    return wanted.kind is given.kind


def are_alike(one: str, other: str) -> bool:
    """Whether leaves below these starts can be the same: moments are no parameters, nor other moments."""
    return _slots(one) == _slots(other)


def _slots(start: str) -> list[str]:
    """The components within an optimizer's state that say what lies below: `mu` of `opt_state/0/mu/`."""
    names = start.split(SEPARATOR)[:-1]
    roots = (i for i, name in enumerate(names) if name in STATES | OPTIMIZER)
    root = next((i for i in roots if names[i + 1 : i + 2] != ["target"]), len(names))
    return [n for n in names[root:] if not (n.isdigit() or n in _CONTAINERS or n.startswith("inner_"))]


def look_alike(key: str, leaves: Mapping[str, Leaf], offered: Iterable[Tree]) -> Iterator[str]:
    """The leaves of no other place in the target that can be this one: with its last name, and fitting it."""
    start, _, last = key.rpartition(SEPARATOR)
    for text, entry in itertools.chain.from_iterable(tree.items() for tree in offered):
        above, _, name = text.rpartition(SEPARATOR)
        is_free = text not in leaves or text == key
        has_name = name == last and are_alike(f"{above}/", f"{start}/")
        if is_free and has_name and fits(leaves[key], entry.leaf):
            yield text


def _preferred(rivals: Sequence[Move]) -> Move | None:
    """The one of several candidates for the same leaves that is meant; None where that is not clear.

    The names may tell, as of `image` to `params/image`. Otherwise it is `params` beside others, say `ema`.
    """
    close = max(rival.affinity for rival in rivals)
    closest = [rival for rival in rivals if rival.affinity == close]
    if len(closest) == 1:
        return closest[0]
    params = [rival for rival in closest if rival.names[-1:] == [PARAMS]]
    if len(params) != 1 or len({rival.name for rival in closest}) != 1:
        return None
    above = params[0].names[:-1]
    return params[0] if all(rival.names[: len(above)] == above for rival in closest) else None


def _with(rules: Sequence[Move], best: Move) -> Iterator[list[Move]]:
    """The rules with one more, of which patterns are tried from wide to narrow. Narrow rules come first."""
    if _INDEX.search(best.target.start):
        return
    heads = {origin[len(best.source.start) :].split(SEPARATOR)[0] for origin in best.given.values()}
    for middle in ("(.*)", f"((?:{'|'.join(map(_escaped, sorted(heads)))})(?:/.*)?)"):
        pattern = f"{_escaped(best.source.start)}{middle}{_escaped(best.source.end)}"
        yield sorted([*rules, replace(best, pattern=pattern)], key=lambda rule: -len(rule.names))


def _escaped(text: str) -> str:
    return str(regex.escape(text, special_only=True, literal_spaces=True))


def _work(
    rules: Sequence[Move], missing: Collection[str], leaves: Mapping[str, Leaf], offered: Mapping[str, Tree]
) -> bool:
    """Whether rules in this order give all their leaves, take none away and call no two leaves the same."""
    compiled = [(rule, regex.compile(rule.pattern)) for rule in rules]
    wanted = {key: rule for rule in rules for key in rule.given}
    first, lacking, outputs = next(iter(offered)), set(missing), dict[str, Move]()
    for name, text in ((name, text) for name, tree in offered.items() for text in tree):
        fitting = (move for move, pattern in compiled if move.name == name and pattern.fullmatch(text))
        move = next(fitting, None)
        if move is None:
            continue
        output = _replaced(text, move.source, move.target)
        is_taken = name == first and text in leaves and text not in lacking
        if output is None or output in outputs or is_taken:
            return False
        if output in leaves and output not in wanted and leaves[output].kind is not LeafKind.EMPTY:
            return False
        outputs[output] = move
    return all(outputs.get(key) == move for key, move in wanted.items())


def move_hints(rules: Sequence[Move], count: int, several: bool) -> Iterator[str]:
    """Sentences about rules that give some of `count` missing leaves; `several`: of several sources."""
    for rule in rules:
        source = f"The source `{rule.name}`" if several else "The source"
        some = f"{len(rule.given):,} of {count:,}" if len(rule.given) < count else "them"
        found = few_keys(rule.given.values(), 1)
        yield f"{source} has {some} elsewhere, {found}: add the rule `{rule.rule}`."
    if len(rules) == 1 and len(rules[0].given) == count and rules[0].is_first:
        [move] = rules
        if len(move.names) == 1 and not any((*move.target, move.source.end)):
            yield f"Or give the target this level too: `{{{move.names[0]!r}: target}}`."


def pattern_of(missing: Iterable[str], others: Collection[str]) -> str:
    """A regular expression of missing keys and of no `others`: the first subtrees that lack all leaves."""
    if not others:
        return ".*"
    inhabited = {prefix for text in others for prefix in _prefixes(text)}
    patterns: dict[str, None] = {}
    for start in dict.fromkeys(
        next((p for p in _prefixes(text) if p not in inhabited), text) for text in missing
    ):
        # For any numbers, unless that would match other keys.
        end = ".*" if start.endswith(SEPARATOR) else ""
        pattern = str(regex.escape(start, special_only=True))
        any_number = regex.compile(regex.sub("[0-9]+", r"\\d+", pattern) + end)
        fits_others = any(any_number.fullmatch(other) for other in others)
        patterns[pattern + end if fits_others else any_number.pattern] = None
    return "|".join(itertools.islice(patterns, FEW))


def _prefixes(text: str) -> Iterator[str]:
    """`a/`, `a/b/`, … of `a/b/c`: the containers that a key lies in."""
    return (text[: i + 1] for i, character in enumerate(text) if character == SEPARATOR)
