"""Methods of merging, as expressions of the recipe language.

In an expression `m1`, `m2`, … are the tensors of the models in order and `b` is the base's, all in float32
(float64 where one of them is). What several expressions need has a name, so that it is written and computed
once.

The formulas are those of mergekit 0.1.5, whose methods are described in its documentation and in the papers
that it cites. Those with sparsified differences from the base: TIES (Yadav et al. 2023), DARE (Yu et al.
2023), Model Breadcrumbs (Davari and Belilovsky 2023), DELLA (Deep et al. 2024), SCE (Wan et al. 2024). Others
that start from them: Model Stock (Jang et al. 2024), RAM, NearSwap and Arcee Fusion.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging.formula_inputs import COPY, FormulaInputs, ModelInputs

RESULT = "result"
"""Name of the last value of a formula."""
BASE = "b"
"""Name of the base's tensor."""

Formula = Mapping[str, str]
"""Expressions by the name of the value. Each sees the tensors, and the values before it; RESULT is last."""

AT_ONCE = 16
"""Terms of a sum that are added one after the other: longer sums are sums of sums."""


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
    total = sum(model.value("weight") for model in inputs.models) if inputs.value("normalize") else 1.0
    return product(inputs.value("lambda"), over(text, total if abs(total) >= 1e-8 else 1.0))


def sparsified(inputs: FormulaInputs, seed: int) -> Formula:
    """Weighted differences of which each model keeps some, and an election of signs where there is one."""
    weights = counted(inputs)
    if not weights:
        return {RESULT: BASE}
    values = each(weights, "d{}", "m{} - b")
    for i in weights:
        values |= _kept(inputs, i, seed)
    kept = "kept{}"
    if inputs.value("rescale") and any(values[f"kept{i}"] != f"d{i}" for i in weights):
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
    if inputs.value("normalize"):
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
    axis = ", axis=-1, keepdims=True" if inputs.value("filter_wise") else ""
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
    whole, axis = inputs.value("nuslerp_flatten"), 0 if inputs.value("nuslerp_row_wise") else -1
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
    if inputs.value("normalize_weights"):
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
        return sparsified(inputs, seed)
    return FORMULAS[inputs.method](inputs)


def passthrough(inputs: FormulaInputs) -> Formula:
    """The tensor, times `scale`."""
    return {RESULT: product(inputs.models[0].value("scale"), "m1")}


def linear(inputs: FormulaInputs) -> Formula:
    """The weighted mean, or the weighted sum."""
    weights = counted(inputs)
    total = sum(model.value("weight") for model in inputs.models) if inputs.value("normalize") else 1.0
    if total == 0:
        hint = "`normalize: false` does not divide by their sum."
        raise FunctionError("the weights add up to 0", hint=hint)
    if list(weights.values()) == [total]:
        return {RESULT: f"m{min(weights)}"}
    return {RESULT: over(weighted(weights or {1: 0.0}, "m{}"), total)}


_OTHERS = (
    *(arcee_fusion, karcher, linear, model_stock, multislerp, nearswap, nuslerp, passthrough),
    *(ram, sce, slerp, task_arithmetic),
)
FORMULAS: Mapping[str, Callable[[FormulaInputs], Formula]] = {
    COPY: lambda _: {RESULT: "m1"},
    "ramplus_tl": ram,
    **{function.__name__: function for function in _OTHERS},
}
SPARSIFIED = frozenset(
    {"breadcrumbs", "breadcrumbs_ties", "dare_linear", "dare_ties", "della", "della_linear", "ties"}
)
"""Methods of `sparsified`."""
