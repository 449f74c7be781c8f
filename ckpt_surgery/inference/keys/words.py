"""Texts that differ in one place, cut at components."""

import re
from collections.abc import Sequence

from ckpt_surgery.core.frozen import frozen

SEPARATORS = ("/", ".")
"""What stands between the components of a text."""
_TOKENS = re.compile(r"[/.]|[^/.]+")


@frozen()
class Span:
    """What several texts have in common around the place where they differ."""

    before: str
    words: tuple[str, ...]
    """What stands at this place, text by text."""
    after: str


def tokens(text: str) -> list[str]:
    """The components of a text, and the separators `/` and `.` between them."""
    return _TOKENS.findall(text)


def span_of(texts: Sequence[str]) -> Span:
    """Where these texts differ: whole components."""
    split = [tokens(text) for text in texts]
    before = _common(split)
    shortest = min(map(len, split))
    after = _common([one[::-1] for one in split])
    after = min(after, shortest - before)
    words = tuple("".join(one[before : len(one) - after]) for one in split)
    return Span("".join(split[0][:before]), words, "".join(split[0][len(split[0]) - after :]))


def _common(several: Sequence[Sequence[str]]) -> int:
    """How many tokens all of these begin with."""
    count = 0
    for column in zip(*several, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count
