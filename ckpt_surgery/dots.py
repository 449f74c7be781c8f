"""Names with dots where slashes were meant: a leaf `params.l0.kernel` beside the tree `params`."""

import re
from collections.abc import Iterable, Iterator

from ckpt_surgery.entries import Entry
from ckpt_surgery.keys import SEPARATOR
from ckpt_surgery.notices import Notice

_DOT = re.compile(r"(?<=\w)\.(?=[^\W\d])|(?<=[^\W\d])\.(?=\w)")
"""A dot between words; not that of a number or a version."""


def slashed(text: str) -> str | None:
    """The key that separates its levels by slashes where this one has dots; None where it has none."""
    found = _DOT.sub(SEPARATOR, text)
    return None if found == text else found


def mistaken_dots(outputs: Iterable[Entry], known: Iterable[str]) -> Iterator[Notice]:
    """What to say of the keys that rules made.

    Nothing where `known` keys, of the sources and the target, have dots of their own: there they are names.
    """
    suspects = [entry for entry in outputs if entry.rule is not None and _DOT.search(entry.key.text)]
    if not suspects or any(map(_DOT.search, known)):
        return
    for entry in suspects:
        text = entry.key.text
        after = ", a name with dots in it; levels are separated by `/`. Probably meant: "
        yield Notice(f"{entry.rule} makes ", text, after, slashed(text))
