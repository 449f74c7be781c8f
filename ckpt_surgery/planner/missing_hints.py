"""Hints about leaves of a target that nothing gives: where the source has them, and which are new."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.notices import FEW
from ckpt_surgery.core.text import shown
from ckpt_surgery.planner.entries import Tree
from ckpt_surgery.planner.prefixes import Suggestion


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
