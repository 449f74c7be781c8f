"""Text for messages: printable names and values, and suggestions for misspelt names."""

import dataclasses
import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


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


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, printable; an ellipsis stands for the others."""
    return ", ".join(map(shown, names[:most])) + (", …" if len(names) > most else "")


def bytes_text(count: float) -> str:
    """A number of bytes as `1.50 GiB`: three significant digits, powers of 1024."""
    return _in_units(count, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def count_text(count: int) -> str:
    """A large number in short: `512`, `1.50K`, `267M`, `70.6B`; three significant digits, powers of 1000."""
    return _in_units(count, 1000, ("", "K", "M", "B", "T"))


def _in_units(count: float, base: int, units: Sequence[str]) -> str:
    """Three significant digits of a count in the unit that leaves at most three before the point."""
    unit = 0
    while count >= 999.5 and unit < len(units) - 1:
        count, unit = count / base, unit + 1
    digits = 0 if unit == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f}{units[unit]}"


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: it has no half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


LONGEST_REPR, LONGEST_BRIEF = 60, 400
"""Limits on the characters of `abridged` and of `brief`."""


def abridged(value: object) -> str:
    """`repr(value)` without addresses, cut where it is long: for messages about values that a caller gave."""
    text = re.sub(" at 0x[0-9A-Fa-f]+", "", repr(value))
    return text if len(text) <= LONGEST_REPR else f"{text[: LONGEST_REPR - 3]}..."


def shortened(text: str, most: int) -> str:
    """`text` with `…` for its middle where it is longer than `most` characters: the ends of keys differ."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


class _Brief(reprlib.Repr):
    """`repr` of limited width and depth: the first entries of containers, the ends of texts."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdict = 4
        self.maxstring = self.maxother = LONGEST_REPR

    def repr_instance(self, value: Any, level: int) -> str:
        if isinstance(value, Mapping):
            return self.repr_dict(dict(value), level)
        if vars(type(value)).get("__repr__") is not brief:
            return super().repr_instance(value, level)
        if level <= 0:
            return f"{type(value).__name__}(...)"
        shown_fields = [field.name for field in dataclasses.fields(value) if field.repr]
        parts = [f"{name}={self.repr1(getattr(value, name), level - 1)}" for name in shown_fields]
        return f"{type(value).__name__}({', '.join(parts)})"


_BRIEF = _Brief()


def brief(value: Any) -> str:
    """The `__repr__` of a dataclass whose fields can grow with a checkpoint: one line, of limited length."""
    return shortened(shown(_BRIEF.repr(value)), LONGEST_BRIEF)


def number_of(count: int, noun: str) -> str:
    """`1 leaf`, `2 leaves`, `3 problems`."""
    plural = "leaves" if noun == "leaf" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def seconds_text(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    return whole_seconds_text(seconds)


def whole_seconds_text(seconds: float) -> str:
    """`5 s`, `3 min 20 s`, `2 h 05 min`: for estimates."""
    if round(seconds) < 60:
        return f"{round(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def chosen_text(format: str, step: int | None, item: str | None) -> str:
    """`orbax, step 10, item default`: format of a checkpoint, with the step and item that were chosen."""
    parts = [shown(format)]
    parts += [] if step is None else [f"step {step}"]
    parts += [] if item is None else [f"item {shown(item)}"]
    return ", ".join(parts)
