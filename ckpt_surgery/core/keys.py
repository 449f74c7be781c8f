"""Key paths: the components of a leaf's path, each with the kind of container that it indexes."""

import re
from collections.abc import Iterable
from dataclasses import field

from ckpt_surgery.core.frozen import frozen

SEPARATOR = "/"
"""What stands between the components of a key in its text."""

ESCAPED = rf"\{SEPARATOR}"
"""How a separator inside a component is printed."""


@frozen()
class Key:
    """The path of a leaf. Two keys are equal if their components and kinds of containers are."""

    names: tuple[str, ...]
    """Components as text; list indices as decimal digits. A component can contain `/`."""
    sequences: tuple[bool, ...]
    """Whether each component indexes a sequence (True), or a dict or attribute (False)."""
    text: str = field(init=False, compare=False, repr=False)
    """The components joined with `/`, without escapes. Regexes are matched against it, and it identifies a
    leaf of a checkpoint; `printed` is what people see."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", SEPARATOR.join(self.names))

    @staticmethod
    def parse(text: str) -> "Key":
        """The key whose components are the parts of `text` between `/`, all of them dict keys."""
        return Key.of(text.split(SEPARATOR))

    @staticmethod
    def of(names: Iterable[str]) -> "Key":
        """The key with these components, all of them dict keys."""
        parts = tuple(names)
        return Key(parts, (False,) * len(parts))

    @property
    def printed(self) -> str:
        r"""The components joined with `/`, with a `/` inside one as `\/`."""
        if self.text.count(SEPARATOR) < len(self.names):  # the usual case: no component has one
            return self.text
        return SEPARATOR.join(name.replace(SEPARATOR, ESCAPED) for name in self.names)

    def __str__(self) -> str:
        return self.text


def text_of(written: str) -> str:
    r"""The text of a key as a person wrote it, who may have written a `/` inside a component as `\/`."""
    return written.replace(ESCAPED, SEPARATOR)


def parts_of(printed: str) -> list[str]:
    """The components of a printed key, as they are printed."""
    return _UNESCAPED.split(printed)


_UNESCAPED = re.compile(rf"(?<!\\){SEPARATOR}")
_DIGITS = re.compile(r"(\d+)")


def natural_order(text: str) -> tuple[tuple[int, int, str, str], ...]:
    """A sort key that puts `layer_2` before `layer_10`."""
    return tuple(
        _number_order(token) if i % 2 else (1, 0, token, "") for i, token in enumerate(_DIGITS.split(text))
    )


def _number_order(digits: str) -> tuple[int, int, str, str]:
    """A sort key for a number of any length: Python makes no integers of more than 4,300 digits."""
    significant = digits.lstrip("0")
    return (0, len(significant), significant, digits)
