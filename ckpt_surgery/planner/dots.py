"""Warns of keys with dots where slashes were meant: a leaf `params.l0.kernel` beside the tree `params`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.planner.effects import naming_rule
from ckpt_surgery.planner.entries import Entry, RuleRef

_DOT = re.compile(r"(?<=\w)\.(?=[^\W\d])|(?<=[^\W\d])\.(?=\w)")
"""A dot between words; not the dot of a number or a version."""


def slashed(text: str) -> str | None:
    """The key with slashes in place of dots between levels; None if it has no such dots."""
    found = _levels(text)
    return None if found == text else found


def _levels(text: str) -> str:
    return _DOT.sub(SEPARATOR, text)


def mistaken_dots(outputs: Sequence[Entry], known: Iterable[str]) -> Iterator[Notice]:
    """One warning for each rule that makes keys with dots in them.

    There is none if dots are on purpose, as in Hugging Face's names: if a `known` key, of the sources or the
    target, has dots, or if all outputs have dots and none begins with the first name of a known key.
    """
    suspects = [entry for entry in outputs if entry.effects and _DOT.search(entry.key.text)]
    if not suspects:
        return
    roots = set()
    for text in known:
        if _DOT.search(text):
            return
        roots.add(text.partition(SEPARATOR)[0])
    mixed = any(SEPARATOR in entry.key.text and not _DOT.search(entry.key.text) for entry in outputs)
    made: dict[RuleRef | None, list[str]] = defaultdict(list)
    for entry in suspects:
        if mixed or _levels(entry.key.text).partition(SEPARATOR)[0] in roots:
            made[naming_rule(entry.effects)].append(entry.key.text)
    for rule, keys in made.items():
        meant = few_keys(map(_levels, keys))
        end = f"names with dots in them; levels are separated by `/`. Probably meant: {meant}"
        yield Notice(f"{rule} makes {few_keys(keys)}: {end}")
