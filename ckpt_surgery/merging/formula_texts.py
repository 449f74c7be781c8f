"""Formulas, and the texts of their sums and products."""

from collections.abc import Iterable, Mapping, Sequence

from ckpt_surgery.merging.formula_inputs import FormulaInputs

RESULT = "result"
"""Name of the last value of a formula."""
BASE = "b"
"""Name of the base's tensor."""

Formula = Mapping[str, str]
"""Expressions by the name of the value. Each sees the tensors, and the values before it; RESULT is last."""

AT_ONCE = 16
"""FormulaInputs of a sum that are added one after the other: longer sums are sums of sums."""


def numbered(inputs: FormulaInputs) -> range:
    """The numbers of the models: the tensor of the first is `m1`."""
    return range(1, len(inputs.models) + 1)


def counted(inputs: FormulaInputs) -> dict[int, float]:
    """The weights of models by their number, without those that count for nothing: they are not read."""
    weights = (model.value("weight") for model in inputs.models)
    return {i: weight for i, weight in enumerate(weights, 1) if weight != 0}


def each(numbers: Iterable[int], name: str, text: str) -> dict[str, str]:
    """A value for each number, which stands for `{}` in its name and its expression."""
    return {name.format(i): text.format(i) for i in numbers}


def weighted(weights: Mapping[int, float], text: str) -> str:
    """The sum of an expression of each model, times the model's weight. Its number stands for `{}`."""
    return added([product(weight, text.format(i)) for i, weight in weights.items()])


def product(factor: float, text: str) -> str:
    return text if factor == 1 else f"{factor!r} * {text}"


def over(text: str, divisor: float) -> str:
    return text if divisor == 1 else f"{text} / {divisor!r}"


def added(texts: Sequence[str]) -> str:
    """The sum of expressions."""
    if len(texts) <= AT_ONCE:
        return texts[0] if len(texts) == 1 else f"({' + '.join(texts)})"
    while len(texts) > 1:
        groups = (texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE))
        texts = [group[0] if len(group) == 1 else f"sum([{', '.join(group)}])" for group in groups]
    return texts[0]
