"""Methods of merging, as expressions of the recipe language.

In an expression `m1`, `m2`, … are the tensors of the models in order and `b` is the base's, all in float32
(float64 where one of them is). What several expressions need has a name, so that it is written and computed
once.

The formulas are those of mergekit 0.1.5, whose methods are described in its documentation and in the papers
that it cites.
"""

from collections.abc import Callable, Iterable, Mapping

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging import differences
from ckpt_surgery.merging.formula_inputs import (
    BASE,
    COPY,
    RESULT,
    Formula,
    FormulaInputs,
    added,
    counted,
    each,
    numbered,
    over,
    product,
    weighted,
)

PARALLEL = 0.9995
"""Cosine from which on SLERP is linear."""


def slerp(inputs: FormulaInputs) -> Formula:
    """From the base to the model, by `t`."""
    t = inputs.value("t")
    if t in (0, 1):
        return {RESULT: "m1" if t else BASE}
    turned, linear = "sin({} * angle) / sin(angle)", f"abs(cosine) > {PARALLEL!r}"
    return {
        "size_b": "norm(b)",
        "size_m": "norm(m1)",
        "unit_b": "b / where(size_b > 1e-08, size_b, 1.0)",
        "unit_m": "m1 / where(size_m > 1e-08, size_m, 1.0)",
        "cosine": "clip(sum(unit_b * unit_m), -1, 1)",
        "angle": f"arccos(where({linear}, 0.0, cosine))",
        "share_b": f"where({linear}, {1 - t!r}, {turned.format(repr(1 - t))})",
        "share_m": f"where({linear}, {t!r}, {turned.format(repr(t))})",
        RESULT: "share_b * b + share_m * m1",
    }


def nuslerp(inputs: FormulaInputs) -> Formula:
    """From the first model to the second by its share of the weights: whole, by rows or by columns."""
    first, second = (model.value("weight") for model in inputs.models)
    t = 0.5 if abs(first + second) < 1e-6 else second / (first + second)
    whole, axis = inputs.holds("nuslerp_flatten"), 0 if inputs.holds("nuslerp_row_wise") else -1
    along = "" if whole else f", axis={axis}, keepdims=True"
    x, differences = _from_base(inputs)
    x1, x2, linear = f"{x}1", f"{x}2", "1 - cosine * cosine <= 1e-16"
    curved = f"(sin({1 - t!r} * angle) * {x1} + sin({t!r} * angle) * {x2}) / sin(angle)"
    mixed = f"where({linear}, {1 - t!r} * {x1} + {t!r} * {x2}, {curved})"
    return {
        **differences,
        "unit1": f"{x1} / maximum(norm({x1}{along}), 1e-07)",
        "unit2": f"{x2} / maximum(norm({x2}{along}), 1e-07)",
        "cosine": f"clip(sum(unit1 * unit2{along}), -1, 1)",
        "angle": f"arccos(where({linear}, 0.0, cosine))",
        RESULT: f"b + {mixed}" if differences else mixed,
    }


def multislerp(inputs: FormulaInputs) -> Formula:
    """The middle of several models, found in the plane that touches the sphere at their weighted mean."""
    if len(inputs.models) == 1:
        return {RESULT: "m1"}
    weights = {i: model.value("weight") for i, model in enumerate(inputs.models, 1)}
    if inputs.holds("normalize_weights"):
        total = sum(weights.values())
        if total == 0:
            hint = "`normalize_weights: false` does not divide by their sum."
            raise FunctionError("the weights add up to 0", hint=hint)
        weights = {i: weight / total for i, weight in weights.items()}
    eps, (x, differences) = repr(inputs.value("eps")), _from_base(inputs)
    curved = "(middle * cos(angle) + tangent * (sin(angle) / angle)) * length"
    # Opposite vectors have no middle: their weighted sum stands for it, as mergekit has it for two of them.
    result = f"where(size < {eps}, {weighted(weights, x + '{}')}, {curved})"
    return {
        **differences,
        **each(weights, "size{}", f"norm({x}{{}})"),
        "length": weighted(weights, "size{}"),
        **each(weights, "unit{}", f"{x}{{0}} / (size{{0}} + {eps})"),
        "inner": weighted(weights, "unit{}"),
        "size": "norm(inner)",
        "middle": "inner / size",
        **each(weights, "cosine{}", "sum(unit{} * middle)"),
        "tangent": weighted(weights, "(unit{0} - cosine{0} * middle)"),
        "angle": f"norm(tangent) + {eps}",
        RESULT: f"b + {result}" if differences else result,
    }


def _from_base(inputs: FormulaInputs) -> tuple[str, Formula]:
    """Differences of the models from the base, or else the models themselves, by their first letter."""
    return ("m", {}) if inputs.base is None else ("d", each(numbered(inputs), "d{}", "m{} - b"))


def karcher(inputs: FormulaInputs) -> Formula:
    """The Karcher mean of all directions, with the mean of the lengths.

    All points of the iteration are sums of the models' directions. So only the factors of these sums are
    computed, from the cosines between the models: in float64, and without another pass over the tensors.
    """
    count, numbers = len(inputs.models), numbered(inputs)
    if count == 1:
        return {RESULT: "m1"}
    settings = f"{int(inputs.value('max_iter'))}, {inputs.value('tol')!r}"
    rows = (_stacked(f"cosine{min(i, j)}_{max(i, j)}" for j in numbers) for i in numbers)
    return {
        **each(numbers, "size{}", "norm(cast(m{}, 'float64'))"),
        **each(numbers, "unit{}", "cast(m{0}, 'float64') / where(size{0} == 0, 1.0, size{0})"),
        **{f"cosine{i}_{j}": f"sum(unit{i} * unit{j})" for i in numbers for j in range(i, count + 1)},
        "cosines": _stacked(rows),
        "sizes": _stacked(f"size{i}" for i in numbers),
        "factors": f"karcher_weights(cosines, sizes, {settings})",
        RESULT: added([f"cast(factors[{i - 1}], m{i}.dtype) * m{i}" for i in numbers]),
    }


def _stacked(texts: Iterable[str]) -> str:
    return f"stack([{', '.join(texts)}])"


def formula(inputs: FormulaInputs, seed: int) -> Formula:
    """Formula for the tensors with these inputs. `seed`: for methods that draw at random.

    Raises FunctionError for values of parameters that the method cannot have.
    """
    if inputs.method in SPARSIFIED:
        return differences.sparsified(inputs, seed)
    return FORMULAS[inputs.method](inputs)


def passthrough(inputs: FormulaInputs) -> Formula:
    """The tensor, times `scale`."""
    scale = dict(inputs.models[0].values)["scale"]
    return {RESULT: "m1" if scale is None else product(scale, "m1")}


def linear(inputs: FormulaInputs) -> Formula:
    """The weighted mean, or the weighted sum."""
    weights = counted(inputs)
    total = sum(model.value("weight") for model in inputs.models) if inputs.holds("normalize") else 1.0
    if total == 0:
        hint = "`normalize: false` does not divide by their sum."
        raise FunctionError("the weights add up to 0", hint=hint)
    if list(weights.values()) == [total]:
        return {RESULT: f"m{min(weights)}"}
    return {RESULT: over(weighted(weights or {1: 0.0}, "m{}"), total)}


FORMULAS: Mapping[str, Callable[[FormulaInputs], Formula]] = {
    COPY: lambda _: {RESULT: "m1"},
    "arcee_fusion": differences.arcee_fusion,
    "karcher": karcher,
    "linear": linear,
    "model_stock": differences.model_stock,
    "multislerp": multislerp,
    "nearswap": differences.nearswap,
    "nuslerp": nuslerp,
    "passthrough": passthrough,
    "ram": differences.ram,
    "ramplus_tl": differences.ram,
    "sce": differences.sce,
    "slerp": slerp,
    "task_arithmetic": differences.task_arithmetic,
}
SPARSIFIED = frozenset(
    {"breadcrumbs", "breadcrumbs_ties", "dare_linear", "dare_ties", "della", "della_linear", "ties"}
)
"""Methods of `differences.sparsified`."""
