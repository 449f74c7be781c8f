"""What the methods compute, as expressions of the recipe language, step by step.

In an expression `@m0`, `@m1`, … are the tensors of the models in order and `@base` is the base's, all in
float32 (float64 where one of them is). Each step gives names to values, and the expressions of later steps
have them as `@name`; the last step has one, the result. So a value that several others need is written and
computed once, however many models there are.

The formulas are those of mergekit 0.1.5, whose methods are described in its documentation and in the papers
that it cites.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging.terms import COPY, Terms

RESULT = "result"
"""Name of the value of the last step."""

Step = Mapping[str, str]
Formula = tuple[Step, ...]

LEAST_TOTAL = 1e-8
"""Weights whose sum is smaller are not divided by it, as in mergekit."""
AT_ONCE = 16
"""Terms of a sum in one expression: expressions have at most 4,096 characters."""


def formula(terms: Terms, seed: int) -> Formula:
    """The steps that give the tensors with these terms. `seed`: for methods that draw at random.

    Raises FunctionError for values of parameters that the method cannot have.
    """
    return FORMULAS[terms.method](terms)


def _result(expression: str) -> Formula:
    return ({RESULT: expression},)


def _copy(terms: Terms) -> Formula:
    return _result("@m0")


def _passthrough(terms: Terms) -> Formula:
    scale = dict(terms.terms[0].values)["scale"]
    return _result("@m0" if scale in (None, 1) else f"{scale!r} * @m0")


def _linear(terms: Terms) -> Formula:
    weights = [term.value("weight") for term in terms.terms]
    total = sum(weights) if terms.holds("normalize") else 1.0
    if total == 0:
        raise FunctionError(
            "the weights add up to 0", hint="`normalize: false` does not divide by their sum."
        )
    used = _used(terms, "@m{}")
    if len(used) == 1 and used[0].weight == total:
        return _result(used[0].text)
    return _summed(used or [Weighted(0.0, "@m0")], lambda added: _over(added, total))


def _task_arithmetic(terms: Terms) -> Formula:
    used = _used(terms, "(@m{} - @base)")
    if not used:
        return _result("@base")
    return _summed(used, lambda added: f"@base + {_scaled(terms, added)}", ["base"])


def _scaled(terms: Terms, added: str) -> str:
    """A sum of weighted differences as it is added to the base: divided by the weights' sum, times lambda."""
    total = sum(term.value("weight") for term in terms.terms) if terms.holds("normalize") else 1.0
    return _times(terms.value("lambda"), _over(added, total if abs(total) >= LEAST_TOTAL else 1.0))


def _nearswap(terms: Terms) -> Formula:
    share = f"clip({terms.value('t')!r} / maximum(abs(@base - @m0), 1e-06), 0, 1)"
    return ({"base": "@base", "m0": "@m0", "share": share}, *_result("@share * @m0 + (1 - @share) * @base"))


def _ram(terms: Terms) -> Formula:
    numbers, epsilon = range(len(terms.terms)), terms.value("epsilon")
    differences = {f"d{i}": f"@m{i} - @base" for i in numbers}
    changed = {f"c{i}": f"where(abs(@d{i}) > {epsilon!r}, 1.0, 0.0)" for i in numbers}
    added = _added(f"@c{i} * @d{i}" for i in numbers)
    count = _added(f"@c{i}" for i in numbers)
    return (
        {"base": "@base", **differences},
        changed,
        *_result(f"@base + {added} / maximum({count}, 1.0)"),
    )


# --- sums -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weighted:
    """An expression and the weight with which it counts."""

    weight: float
    text: str

    @property
    def product(self) -> str:
        return _times(self.weight, self.text)


def _used(terms: Terms, text: str) -> list[Weighted]:
    """An expression of each model by its number, with the model's weight; one that counts for nothing is not
    read."""
    weights = (term.value("weight") for term in terms.terms)
    return [Weighted(weight, text.format(i)) for i, weight in enumerate(weights) if weight != 0]


def _summed(used: Sequence[Weighted], result: Callable[[str], str], kept: Sequence[str] = ()) -> Formula:
    """The `result` of a weighted sum, in two steps where it is long. It may also use the tensors `kept`."""
    if len(used) <= AT_ONCE:
        return _result(result(_added(one.product for one in used)))
    groups = [used[start : start + AT_ONCE] for start in range(0, len(used), AT_ONCE)]
    sums = {f"s{i}": _added(one.product for one in group) for i, group in enumerate(groups)}
    return ({**{name: f"@{name}" for name in kept}, **sums}, *_result(result(_added(f"@{s}" for s in sums))))


def _times(factor: float, text: str) -> str:
    return text if factor == 1 else f"{factor!r} * {text}"


def _over(text: str, divisor: float) -> str:
    return text if divisor == 1 else f"{text} / {divisor!r}"


def _added(texts: Iterable[str]) -> str:
    listed = list(texts)
    return listed[0] if len(listed) == 1 else f"({' + '.join(listed)})"


FORMULAS: Mapping[str, Callable[[Terms], Formula]] = {
    COPY: _copy,
    "linear": _linear,
    "nearswap": _nearswap,
    "passthrough": _passthrough,
    "ram": _ram,
    "task_arithmetic": _task_arithmetic,
}
