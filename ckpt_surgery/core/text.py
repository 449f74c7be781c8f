"""Words for messages: safe to print, and close to what was meant."""

import difflib
import re
from collections.abc import Iterable, Sequence


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean `transpose`?`, or nothing where no known name is close."""
    close: Sequence[str] = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""


_UNPRINTABLE = re.compile(
    r"[^\x20-\x7e\xa0-\u200a\u2010-\u2027\u2030-\u205f\u2070-\ud7ff"
    r"\uf900-\ufefe\uff00-\ufff8\U00010000-\U0001ffff]"
)


def shown(text: str) -> str:
    r"""`text` with control, formatting and private characters escaped (`\x1b`, `\u202e`): safe to print."""
    return _UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode("ascii"), text)
