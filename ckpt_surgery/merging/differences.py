"""Methods that add to the base what the models differ from it, as `formulas`.

Sparsified: TIES (Yadav et al. 2023), DARE (Yu et al. 2023), Model Breadcrumbs (Davari and Belilovsky 2023),
DELLA (Deep et al. 2024), SCE (Wan et al. 2024). Also Model Stock (Jang et al. 2024), RAM, NearSwap and Arcee
Fusion.
"""

from collections.abc import Mapping

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging.formula_inputs import (
    BASE,
    RESULT,
    Formula,
    FormulaInputs,
    ModelInputs,
    added,
    counted,
    each,
    numbered,
    over,
    product,
    weighted,
)

LEAST_NORM = 1e-7
"""Differences that are smaller altogether are not brought back to their former size."""
FEWEST = 1e-6
"""Smallest sum of weights, or product of norms, that is divided by."""


def task_arithmetic(inputs: FormulaInputs) -> Formula:
    """The base and the weighted differences."""
    weights = counted(inputs)
    return {RESULT: f"b + {_scaled(inputs, weighted(weights, '(m{} - b)'))}" if weights else BASE}


def _scaled(inputs: FormulaInputs, text: str) -> str:
    """A sum of weighted differences as it is added to the base: divided by the weights' sum, times lambda."""
    total = sum(model.value("weight") for model in inputs.models) if inputs.holds("normalize") else 1.0
    return product(inputs.value("lambda"), over(text, total if abs(total) >= 1e-8 else 1.0))


# --- sparsified -------------------------------------------------------------------------------------------


def sparsified(inputs: FormulaInputs, seed: int) -> Formula:
    """Weighted differences of which each model keeps some, and an election of signs where there is one."""
    weights = counted(inputs)
    if not weights:
        return {RESULT: BASE}
    values = each(weights, "d{}", "m{} - b")
    for i in weights:
        values |= _kept(inputs, i, seed)
    kept = "kept{}"
    if inputs.holds("rescale") and any(values[f"kept{i}"] != f"d{i}" for i in weights):
        kept, small = "scaled{}", f"< {LEAST_NORM!r}"
        values |= each(weights, "before{}", "sum(abs(d{}))") | each(weights, "after{}", "sum(abs(kept{}))")
        factor = f"where(minimum(before{{0}}, after{{0}}) {small}, 1.0, before{{0}} / after{{0}})"
        values |= each(weights, kept, f"{factor} * kept{{0}}")
    if inputs.method != "della" and not inputs.method.endswith("ties"):
        return {**values, RESULT: f"b + {_scaled(inputs, weighted(weights, kept))}"}
    values |= {f"w{i}": product(weight, kept.format(i)) for i, weight in weights.items()}
    values["majority"] = f"where({added([f'w{i}' for i in weights])} >= 0, 1.0, -1.0)"
    values |= each(weights, "agrees{}", "where(w{} * majority > 0, 1.0, 0.0)")
    result = added([f"agrees{i} * w{i}" for i in weights])
    if inputs.holds("normalize"):
        values |= {"mixed": result, "weights": weighted(weights, "agrees{}")}
        result = "mixed / where(weights == 0, 1.0, weights)"
    return {**values, RESULT: f"b + {product(inputs.value('lambda'), result)}"}


def _kept(inputs: FormulaInputs, i: int, seed: int) -> dict[str, str]:
    """A difference with zeros where the model's share is dropped."""
    model, x, name = inputs.models[i - 1], f"d{i}", f"kept{i}"
    density = model.value("density")
    if density >= 1:
        return {name: x}
    if density <= 0:
        return {name: f"0.0 * {x}"}
    if inputs.method.startswith(("dare", "della")):
        share = _shares(model, x) if inputs.method.startswith("della") else repr(density)
        return {
            f"mask{i}": f"random_mask({x}, {share}, {seed}, model={i})",
            name: f"where(mask{i}, {x}, 0.0)",
        }
    count = {f"count{i}": f"int({density!r} * {x}.size)"}
    if inputs.method == "ties":
        return {**count, name: f"where(topk_mask({x}, count{i} if count{i} > 1 else 1), {x}, 0.0)"}
    largest = f"int({model.value('gamma')!r} * {x}.size)"
    dropped = f"{largest} if {largest} + count{i} < {x}.size else {x}.size - count{i}"
    inner = f"where(topk_mask({x}, dropped{i} + count{i}), {x}, 0.0)"
    return {**count, f"dropped{i}": dropped, name: f"where(topk_mask({x}, dropped{i}), 0.0, {inner})"}


def _shares(model: ModelInputs, x: str) -> str:
    """The probability of each element: `density` and up to `epsilon` more or less, by the rank of its
    magnitude in its row, which is along the second axis."""
    density, epsilon = model.value("density"), model.value("epsilon")
    if density - epsilon <= 0 or density + epsilon >= 1:
        raise FunctionError(
            f"`density` {density!r} with `epsilon` {epsilon!r}: the probabilities go from `density - "
            "epsilon` to `density + epsilon`; they have to lie between 0 and 1",
            hint="Take a smaller `epsilon`.",
        )
    axis = f"(1 if {x}.ndim > 1 else 0)"
    length = f"{x}.shape[{axis}]"
    ranks = f"cast(ranks(abs({x}), {axis}), 'float32')"
    return f"{density - epsilon!r} + {ranks} / ({length} - 1 if {length} > 1 else 1) * 2.0 * {epsilon!r}"


# --- others -----------------------------------------------------------------------------------------------


def nearswap(inputs: FormulaInputs) -> Formula:
    """The base, and the other model where the two differ by little."""
    share = f"clip({inputs.value('t')!r} / maximum(abs(b - m1), {FEWEST!r}), 0, 1)"
    return {"share": share, RESULT: "share * m1 + (1 - share) * b"}


def ram(inputs: FormulaInputs) -> Formula:
    """The mean of the differences that are large enough; what one model alone has may count for more."""
    numbers, epsilon = numbered(inputs), inputs.value("epsilon")
    values = {
        **each(numbers, "d{}", "m{} - b"),
        **each(numbers, "changed{}", f"where(abs(d{{}}) > {epsilon!r}, 1.0, 0.0)"),
        "changes": added([f"changed{i}" for i in numbers]),
    }
    if inputs.method == "ram":
        total = added([f"changed{i} * d{i}" for i in numbers])
        return {**values, RESULT: f"b + {total} / maximum(changes, 1.0)"}
    r, alpha = inputs.value("r"), inputs.value("alpha")
    share = f"1 + {r!r} * clip(common{{0}} / maximum(alone{{0}}, {epsilon!r}), 0, {alpha!r})"
    total = added([f"changed{i} * d{i} * (gain{i} * one + many)" for i in numbers])
    return {
        **values,
        "one": "where(changes == 1, 1.0, 0.0)",
        "many": "where(changes > 1, 1 / maximum(changes, 1.0), 0.0)",
        **each(numbers, "alone{}", "sum(changed{} * one)"),
        **each(numbers, "common{}", "sum(where(many > 0, changed{}, 0.0))"),
        **each(numbers, "gain{}", share),
        RESULT: f"b + {total}",
    }


def model_stock(inputs: FormulaInputs) -> Formula:
    """Between the base and the mean of the models, the nearer to the mean the smaller the angles are."""
    numbers, count = numbered(inputs), len(inputs.models)
    axis = ", axis=-1, keepdims=True" if inputs.holds("filter_wise") else ""
    pairs = [(i, j) for i in numbers for j in range(i + 1, count + 1)]
    cosine = f"clip(sum(d{{0}} * d{{1}}{axis}) / maximum(size{{0}} * size{{1}}, {FEWEST!r}), -1, 1)"
    cosines = {f"cosine{i}_{j}": cosine.format(i, j) for i, j in pairs}
    return {
        "middle": f"{added([f'm{i}' for i in numbers])} / {count}",
        **each(numbers, "d{}", "m{} - b"),
        **each(numbers, "size{}", f"norm(d{{}}{axis})"),
        **cosines,
        "cosine": f"{added([*cosines])} / {len(pairs)}",
        "below": f"1 + {count - 1} * cosine",
        "share": f"where(abs(below) < {FEWEST!r}, 0.0, {count} * cosine / below)",
        RESULT: "share * middle + (1 - share) * b",
    }


def sce(inputs: FormulaInputs) -> Formula:
    """Differences weighted by their mean squares, where the signs agree.

    With `select_topk`, only where they differ most from one another.
    """
    numbers, count = numbered(inputs), len(inputs.models)
    share = inputs.value("select_topk")
    if share <= 0:
        return {RESULT: BASE}
    values, x = each(numbers, "d{}", "m{} - b"), "d"
    if share < 1:
        x = "kept"
        values |= {
            "middle": f"{added([f'd{i}' for i in numbers])} / {count}",
            "variance": f"{added([f'(d{i} - middle) * (d{i} - middle)' for i in numbers])} / {count}",
            "selected": f"top_share_mask(variance, {share!r})",
            **each(numbers, "kept{}", "where(selected, d{}, 0.0)"),
        }
    return {
        **values,
        "majority": f"where({added([f'{x}{i}' for i in numbers])} >= 0, 1.0, -1.0)",
        **each(numbers, "square{}", f"mean({x}{{0}} * {x}{{0}})"),
        "squares": added([f"square{i}" for i in numbers]),
        **each(numbers, "w{}", f"where(squares < {FEWEST!r}, {1 / count!r}, square{{}} / squares)"),
        **each(numbers, "agrees{}", f"where({x}{{0}} * majority > 0, 1.0, 0.0) * w{{0}}"),
        "mixed": added([f"agrees{i} * {x}{i}" for i in numbers]),
        "weights": added([f"agrees{i}" for i in numbers]),
        RESULT: f"b + mixed / maximum(weights, {FEWEST!r})",
    }


def arcee_fusion(inputs: FormulaInputs) -> Formula:
    """The differences that matter most, by their size and by how the rows' distributions differ."""
    quartiles: Mapping[str, float] = {"low": 0.25, "half": 0.5, "high": 0.75}
    position = "matters.size - int({!r} * (matters.size - 1))"
    order = f"min(where(topk_mask(matters, {position}), matters, most))"
    powers = "exp({0} - max({0}, axis=-1, keepdims=True))"
    shares = "{0} / sum({0}, axis=-1, keepdims=True) + 1e-08"
    return {
        "powers_m": powers.format("m1"),
        "powers_b": powers.format(BASE),
        "p": shares.format("powers_m"),
        "q": shares.format("powers_b"),
        "matters": "abs(m1 - b) * sum(p * log(p / q), axis=-1, keepdims=True)",
        "most": "max(matters)",
        **{name: order.format(share) for name, share in quartiles.items()},
        RESULT: "b + where(matters >= half + 1.5 * (high - low), m1 - b, 0.0)",
    }
