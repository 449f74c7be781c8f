"""Finds the leaves that a target lacks elsewhere in the sources: below another prefix, or without `/value`.

A training state wraps the params in `params`, an optimizer in `target`, and modules of Flax NNX put `value`
behind each key. Where source and target differ in that alone, few rules bring them together.

Hints for leaves that nothing gives say so, and name those that are new.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import FEW
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.yaml.quoting import quoted
from ckpt_surgery.planner.entries import Tree
from ckpt_surgery.planner.moves import Move, PossibleMove, are_alike, candidates, fits

PARAMS = "params"
"""The component below which training states have what is trained."""
_INDEX = regex.compile(r"(?:^|/)\[[0-9]+\](?:/|$)")
"""A component that templates take for the index of a list."""


@dataclass(frozen=True)
class Suggestion:
    """A rule that gives leaves of a target, and the keys of these."""

    move: Move
    is_first: bool
    """Whether the leaves are of the source that rules claim leaves of unless they name another one."""
    pattern: str
    """`match` of the rule."""
    given: Mapping[str, str]
    """Key of the source leaf by the key of the target's."""

    @property
    def template(self) -> str | None:
        """`to` of the rule; None where keys stay as they are."""
        if (self.move.source, self.move.source_end) == (self.move.target, self.move.target_end):
            return None
        start, end = (
            text.replace("\\", "\\\\").replace("$", "$$") for text in (self.move.target, self.move.target_end)
        )
        return f"{start}\\1{end}"

    @property
    def rule(self) -> str:
        """The rule as YAML on one line."""
        fields = {"match": self.pattern, "to": self.template}
        texts = [f"{name}: {quoted(text)}" for name, text in fields.items() if text is not None]
        return "{" + ", ".join(texts + ([] if self.is_first else [f"source: {self.move.name}"])) + "}"

    @property
    def wrapper(self) -> str | None:
        """The one level that the source has and the target lacks; None where they differ in more."""
        bare = not (self.move.target or self.move.source_end or self.move.target_end)
        return self.move.names[0] if bare and self.is_first and len(self.move.names) == 1 else None


def suggestions(
    missing: Sequence[str], leaves: Mapping[str, Leaf], offered: Mapping[str, Tree]
) -> list[Suggestion]:
    """Rules that give missing leaves of a target, in the order to write them; none where several would do.

    `leaves`: the target's. `offered`: by source, the first one first, leaves that no rule claims. The rules
    take nothing from other leaves of the target.
    """
    found: list[Suggestion] = []
    left = list(missing)
    first, lacking = next(iter(offered)), set(missing)
    placed = {(first, text) for text in offered[first] if text in leaves and text not in lacking}
    for _ in range(2 * FEW):
        free = {
            name: {text: entry for text, entry in tree.items() if (name, text) not in placed}
            for name, tree in offered.items()
        }
        ranked = candidates(left, leaves, free)
        if not ranked or len(found) == FEW:
            break
        rivals = [one for one in ranked if one.rivals(ranked[0])]
        best = _preferred([ranked[0], *rivals])
        rules = [found] if best is None else _with(found, best, offered)
        found = next((one for one in rules if _work(one, missing, leaves, offered)), found)
        placed |= {(rule.move.name, origin) for rule in found for origin in rule.given.values()}
        decided = {key for one in (best or ranked[0], *rivals) for key in one.origins}
        left = [key for key in left if key not in decided]
    return found


def look_alike(key: str, leaves: Mapping[str, Leaf], offered: Iterable[Tree]) -> Iterator[str]:
    """The leaves of no other place in the target that can be this one: with its last name, and fitting it."""
    start, _, last = key.rpartition(SEPARATOR)
    for text, entry in itertools.chain.from_iterable(tree.items() for tree in offered):
        above, _, name = text.rpartition(SEPARATOR)
        is_free = text not in leaves or text == key
        has_name = name == last and are_alike(f"{above}/", f"{start}/")
        if is_free and has_name and fits(leaves[key], entry.leaf):
            yield text


def _preferred(rivals: Sequence[PossibleMove]) -> PossibleMove | None:
    """The one of several candidates for the same leaves that is meant; None where that is not clear.

    The names may tell, as of `image` to `params/image`. Otherwise it is `params` beside others, say `ema`.
    """
    if len(rivals) == 1:
        return rivals[0]
    close = max(one.move.affinity for one in rivals)
    closest = [one for one in rivals if one.move.affinity == close]
    if len(closest) == 1:
        return closest[0]
    params = [one for one in closest if one.move.names[-1:] == [PARAMS]]
    if len(params) != 1 or len({one.move.name for one in closest}) != 1:
        return None
    above = params[0].move.names[:-1]
    beside = all(one.move.names[: len(above)] == above for one in closest)
    return params[0] if beside else None


def _with(
    found: Sequence[Suggestion],
    best: PossibleMove,
    offered: Mapping[str, Tree],
) -> Iterator[list[Suggestion]]:
    """The rules with one more, of which patterns are tried from wide to narrow. Narrow rules come first."""
    move, is_first = best.move, best.move.name == next(iter(offered))
    start, end = (_escaped(text) for text in (move.source, move.source_end))
    if _INDEX.search(move.target):
        return
    heads = {origin[len(move.source) :].split(SEPARATOR)[0] for origin in best.origins.values()}
    narrow = f"((?:{'|'.join(map(_escaped, sorted(heads)))})(?:/.*)?)"
    for middle in ("(.*)", narrow):
        one = Suggestion(move, is_first, f"{start}{middle}{end}", best.origins)
        yield sorted([*found, one], key=lambda rule: -len(rule.move.names))


def _escaped(text: str) -> str:
    return str(regex.escape(text, special_only=True, literal_spaces=True))


def _work(
    rules: Sequence[Suggestion],
    missing: Collection[str],
    leaves: Mapping[str, Leaf],
    offered: Mapping[str, Tree],
) -> bool:
    """Whether rules in this order give all their leaves, take none away and call no two leaves the same."""
    compiled = [(one, regex.compile(one.pattern)) for one in rules]
    wanted = {key: one.move for one in rules for key in one.given}
    lacking, made = set(missing), dict[str, Move]()
    for name, tree in offered.items():
        for text in tree:
            fitting = (one for one, pattern in compiled if one.move.name == name and pattern.fullmatch(text))
            move = next((one.move for one in fitting), None)
            if move is None:
                continue
            output = move.output(text)
            is_taken = name == next(iter(offered)) and text in leaves and text not in lacking
            if output is None or output in made or is_taken:
                return False
            if output in leaves and output not in wanted and leaves[output].kind is not LeafKind.EMPTY:
                return False
            made[output] = move
    return all(made.get(key) == move for key, move in wanted.items())


def without_place(
    rules: Sequence[Suggestion], leaves: Collection[str], unclaimed: Mapping[str, Tree]
) -> list[str]:
    """The keys of source leaves that the target has no place for, also not by these rules."""
    placed = {(rule.move.name, origin) for rule in rules for origin in rule.given.values()}
    return [
        text
        for name, tree in unclaimed.items()
        for text in tree
        if text not in leaves and (name, text) not in placed
    ]


def move_hints(rules: Sequence[Suggestion], count: int, several: bool) -> Iterator[str]:
    """Sentences about rules that give missing leaves.

    `count`: the number of all missing leaves. `several`: whether there are several sources.
    """
    for i, rule in enumerate(rules):
        given, example = len(rule.given), shown(next(iter(rule.given.values())))
        source = f"The source `{rule.move.name}`" if several else "The source"
        some = f"{given:,} of them" if given < count else "them" if count > 1 else "it"
        where = f"`{example}`" if given == 1 else f"`{example}`, …"
        yield f"{source} has {some} {'also' if i else 'elsewhere'}, {where}: add the rule `{rule.rule}`."
    if len(rules) == 1 and len(rules[0].given) == count and rules[0].wrapper is not None:
        yield f"Or give the target this level too: `{{{rules[0].wrapper!r}: target}}`."


def pattern_of(missing: Iterable[str], others: Collection[str]) -> str:
    """A regular expression that matches missing keys, and none of the others.

    It names the subtrees that lack all their leaves; if there are many, only the first of them.
    """
    if not others:
        return ".*"
    inhabited = {prefix for text in others for prefix in _prefixes(text)}
    patterns = dict.fromkeys(
        _generalized(next((p for p in _prefixes(text) if p not in inhabited), text), others)
        for text in missing
    )
    return "|".join(itertools.islice(patterns, FEW))


def _prefixes(text: str) -> Iterator[str]:
    """`a/`, `a/b/`, … of `a/b/c`: the containers that a key lies in."""
    return (text[: i + 1] for i, character in enumerate(text) if character == SEPARATOR)


def _generalized(text: str, others: Iterable[str]) -> str:
    """A pattern for a key or a container's content: for any numbers, unless that would match other keys."""
    end = ".*" if text.endswith(SEPARATOR) else ""
    pattern = str(regex.escape(text, special_only=True))
    any_number = str(regex.sub("[0-9]+", r"\\d+", pattern)) + end
    compiled = regex.compile(any_number)
    return pattern + end if any(compiled.fullmatch(other) for other in others) else any_number
