"""Names of tensors in families: `model.layers.{i}.mlp.{…}.weight` for all layers, instead of one by one.

A rule of a recipe makes all tensors of a family, so that a recipe has tens of rules where a model has tens of
thousands of tensors.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

VARIABLES = "ijklmn"
"""Names of the variables for numbers in names; a name with more numbers is written out."""
TAIL = "tail"
"""Name of the variable for the ends of names."""
_NUMBER = re.compile(r"(?<=\.)(0|[1-9]\d*)(?=\.)")
_PLAIN = re.compile(r"[\w.\-]*")
"""Text that means itself in templates and in f-strings."""


@dataclass(frozen=True)
class Family:
    """The names of the form `START NUMBER TEXT NUMBER … TAIL`, for all numbers and all tails."""

    texts: tuple[str, ...]
    """The text before each number."""
    ranges: tuple[range, ...]
    """The numbers, one range after each text."""
    tails: tuple[str, ...]

    @property
    def template(self) -> str:
        """The names, as the template of a key."""
        numbers = (f"${{{name}}}" if len(one) > 1 else str(one.start) for name, one in self._numbers())
        return f"{self._joined(numbers)}${{{TAIL}}}"

    def expression(self, offset: int) -> str:
        """The names of a model, as an expression. `offset` is added to the first number: the layer's."""
        offsets = itertools.chain([offset], itertools.repeat(0))
        numbers = (
            _number(name, one, add) for (name, one), add in zip(self._numbers(), offsets, strict=False)
        )
        return f"f'{self._joined(numbers)}{{{TAIL}}}'" if self.texts else TAIL

    def variables(self, tails: str) -> dict[str, str]:
        """The expressions of the variables of a rule's `for`. `tails` is the expression for the tails."""
        several = ((name, one) for name, one in self._numbers() if len(one) > 1)
        return {**{name: f"range({one.start}, {one.stop})" for name, one in several}, TAIL: tails}

    def _numbers(self) -> list[tuple[str, range]]:
        """The ranges, each with the name of its variable."""
        return list(zip(VARIABLES[: len(self.ranges)], self.ranges, strict=True))

    def _joined(self, numbers: Iterable[str]) -> str:
        return "".join(itertools.chain.from_iterable(zip(self.texts, numbers, strict=True)))


def _number(name: str, values: range, offset: int) -> str:
    """A number in an f-string: its variable, or the number itself where there is one only."""
    if len(values) == 1:
        return str(values.start + offset)
    return f"{{{name} {'+' if offset > 0 else '-'} {abs(offset)}}}" if offset else f"{{{name}}}"


def families(names: Iterable[str]) -> Iterator[Family]:
    """Families that have all of these names, each once, and no others."""
    tails: dict[tuple[tuple[str, ...], str], list[tuple[int, ...]]] = {}
    for name in names:
        texts, numbers, tail = _split(name)
        tails.setdefault((texts, tail), []).append(numbers)
    alike: dict[tuple[tuple[str, ...], tuple[range, ...]], list[str]] = {}
    for (texts, tail), indices in tails.items():
        for ranges in _boxes(sorted(indices)):
            alike.setdefault((texts, ranges), []).append(tail)
    for (texts, ranges), members in alike.items():
        yield Family(texts, ranges, tuple(members))


def _split(name: str) -> tuple[tuple[str, ...], tuple[int, ...], str]:
    """The texts before the numbers of a name, the numbers, and what is after the last."""
    parts = _NUMBER.split(name)
    texts, numbers, tail = parts[:-1:2], parts[1::2], parts[-1]
    if len(numbers) > len(VARIABLES) or not all(map(_PLAIN.fullmatch, texts)):
        return (), (), name
    return tuple(texts), tuple(map(int, numbers)), tail


def _boxes(indices: Sequence[tuple[int, ...]]) -> Iterator[tuple[range, ...]]:
    """Products of ranges that have all of these tuples, which are sorted, each once, and no others."""
    if not indices[0]:
        yield ()
        return
    by_first: dict[int, list[tuple[int, ...]]] = {}
    for first, *rest in indices:
        by_first.setdefault(first, []).append(tuple(rest))
    inner = {first: tuple(_boxes(rest)) for first, rest in by_first.items()}
    for run in _runs(inner):
        for box in inner[run.start]:
            yield (run, *box)


def _runs(inner: Mapping[int, object]) -> Iterator[range]:
    """The numbers, which are sorted, as ranges of those that follow one another and have the same value."""
    start: int | None = None
    for number in inner:
        if start is None:
            start = number
        if number + 1 not in inner or inner[number + 1] != inner[start]:
            yield range(start, number + 1)
            start = None
