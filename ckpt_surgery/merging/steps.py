"""Steps of formulas, and the texts of sums."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.merging.terms import Terms

RESULT = "result"
"""Name of the value of the last step."""

MASK = "mask"
"""Beginning of the names of random masks."""
VALUE = re.compile(r"@(\w+)")
"""A value in an expression."""

Step = Mapping[str, str]
"""Expressions by the name of the value."""
Formula = tuple[Step, ...]

AT_ONCE = 16
"""Terms of a sum in one expression: expressions have at most 4,096 characters."""


def distinct(formula: Formula) -> Formula:
    """The formula with a name of its own for each value: one that is given again is numbered."""
    current: dict[str, str] = {}
    times: dict[str, int] = {}
    steps: list[Step] = []
    for step in formula:
        renamed = {
            name: VALUE.sub(lambda found: f"@{current.get(found[1], found[1])}", text)
            for name, text in step.items()
        }
        for name in step:
            times[name] = times.get(name, 0) + 1
            current[name] = name if times[name] == 1 else f"{name}_{times[name]}"
        steps.append({current[name]: text for name, text in renamed.items()})
    return tuple(steps)


def each(numbers: Iterable[int], name: str, text: str) -> dict[str, str]:
    """A value for each number, which stands for `{}` in its name and its expression."""
    return {name.format(i): text.format(i) for i in numbers}


@dataclass(frozen=True)
class Weighted:
    """An expression and the weight with which it counts."""

    weight: float
    text: str


def used(terms: Terms, text: str) -> list[Weighted]:
    """An expression of each model by its number, with the model's weight.

    A model that counts for nothing is not among them: it is not read.
    """
    weights = (term.value("weight") for term in terms.terms)
    return [Weighted(weight, text.format(i)) for i, weight in enumerate(weights) if weight != 0]


def total_of(weighted: Sequence[Weighted], result: Callable[[str], str], kept: Sequence[str] = ()) -> Formula:
    """The `result` of a weighted sum, in several steps if it is long. It may also use the tensors `kept`."""
    steps, total = summed("s", [product(one.weight, one.text) for one in weighted])
    if not steps:
        return ({RESULT: result(total)},)
    tensors = {name: f"@{name}" for name in kept}
    return ({**tensors, **steps[0]}, *steps[1:], {RESULT: result(total)})


def summed(name: str, texts: Sequence[str]) -> tuple[list[Step], str]:
    """The expression for a sum, and the steps before it that a long one needs: they have sums of its parts.

    `name`: what the names of these values begin with.
    """
    if len(texts) <= AT_ONCE:
        return [], added(texts)
    groups = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
    step = {f"{name}_{i}": added(group) for i, group in enumerate(groups)}
    steps, total = summed(f"{name}_", [f"@{part}" for part in step])
    return [step, *steps], total


def product(factor: float, text: str) -> str:
    return text if factor == 1 else f"{factor!r} * {text}"


def over(text: str, divisor: float) -> str:
    return text if divisor == 1 else f"{text} / {divisor!r}"


def added(texts: Iterable[str]) -> str:
    listed = list(texts)
    return listed[0] if len(listed) == 1 else f"({' + '.join(listed)})"
