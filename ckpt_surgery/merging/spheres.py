"""Methods that go along the sphere, to another model or to the middle of several, as steps of `formulas`.

A tensor is one vector. SLERP (Shoemake 1985) and NuSLERP join two; Multi-SLERP and the Karcher mean (Karcher
1977) take several.
"""

from collections.abc import Iterable

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging.steps import RESULT, Formula, Step, each, product, summed
from ckpt_surgery.merging.terms import Terms

PARALLEL = 0.9995
"""Cosine from which on SLERP is linear."""
OPPOSITE = "the weights add up to 0"


def slerp(terms: Terms) -> Formula:
    """From the base to the model, by `t`."""
    t = terms.value("t")
    if t in (0, 1):
        return ({RESULT: "@m0" if t else "@base"},)
    angle, linear = "sin({} * @angle) / sin(@angle)", f"abs(@cos) > {PARALLEL!r}"
    return (
        {"a": "@base", "b": "@m0"},
        {"na": "norm(@a)", "nb": "norm(@b)"},
        {"ua": "@a / where(@na > 1e-08, @na, 1.0)", "ub": "@b / where(@nb > 1e-08, @nb, 1.0)"},
        {"cos": "clip(sum(@ua * @ub), -1, 1)"},
        {"angle": f"arccos(where({linear}, 0.0, @cos))"},
        {
            "fa": f"where({linear}, {1 - t!r}, {angle.format(repr(1 - t))})",
            "fb": f"where({linear}, {t!r}, {angle.format(repr(t))})",
        },
        {RESULT: "@fa * @a + @fb * @b"},
    )


def nuslerp(terms: Terms) -> Formula:
    """From the first model to the second by its share of the weights: whole, by rows or by columns."""
    first, second = (term.value("weight") for term in terms.terms)
    t = 0.5 if abs(first + second) < 1e-6 else second / (first + second)
    whole, axis = terms.holds("nuslerp_flatten"), 0 if terms.holds("nuslerp_row_wise") else -1
    along = "" if whole else f", axis={axis}, keepdims=True"
    linear, less = "1 - @cos * @cos <= 1e-16", "" if terms.base is None else " - @base"
    mixed = f"(sin({1 - t!r} * @angle) * @a + sin({t!r} * @angle) * @b) / sin(@angle)"
    return (
        {"a": f"@m0{less}", "b": f"@m1{less}", **({} if terms.base is None else {"base": "@base"})},
        {"na": f"norm(@a{along})", "nb": f"norm(@b{along})"},
        {"ua": "@a / maximum(@na, 1e-07)", "ub": "@b / maximum(@nb, 1e-07)"},
        {"cos": f"clip(sum(@ua * @ub{along}), -1, 1)"},
        {"angle": f"arccos(where({linear}, 0.0, @cos))"},
        {"mixed": f"where({linear}, {1 - t!r} * @a + {t!r} * @b, {mixed})"},
        {RESULT: "@mixed" if terms.base is None else "@base + @mixed"},
    )


def multislerp(terms: Terms) -> Formula:
    """The middle of several models, found in the plane that touches the sphere at their weighted mean."""
    if len(terms.terms) == 1:
        return ({RESULT: "@m0"},)
    weights = [term.value("weight") for term in terms.terms]
    if terms.holds("normalize_weights"):
        total = sum(weights)
        if total == 0:
            hint = "`normalize_weights: false` does not divide by their sum."
            raise FunctionError("the weights add up to 0", hint=hint)
        weights = [weight / total for weight in weights]
    numbers, eps = range(len(weights)), repr(terms.value("eps"))
    less, base = ("", {}) if terms.base is None else (" - @base", {"base": "@base"})

    def weighted(name: str, text: str) -> tuple[list[Step], str]:
        return summed(name, [product(weight, text.format(i)) for i, weight in enumerate(weights)])

    curved = "(@mean * cos(@angle) + @tangent * (sin(@angle) / @angle)) * @length"
    # Opposite vectors have no middle: their weighted sum stands for it, as mergekit has it for two of them.
    result = f"where(@size < {eps}, @sum, {curved})"
    lengths, length = weighted("l", "@n{}")
    wholes, whole = weighted("w", "@x{}")
    means, mean = weighted("v", "@u{}")
    ways, way = weighted("t", "(@u{0} - @c{0} * @mean)")
    return (
        {**each(numbers, "x{}", f"@m{{}}{less}"), **base},
        each(numbers, "n{}", "norm(@x{})"),
        *lengths,
        *wholes,
        {**each(numbers, "u{}", f"@x{{0}} / (@n{{0}} + {eps})"), "length": length, "sum": whole},
        *means,
        {"mean": mean},
        {"size": "norm(@mean)"},
        {"mean": "@mean / @size"},
        each(numbers, "c{}", "sum(@u{} * @mean)"),
        *ways,
        {"tangent": way},
        {"angle": f"norm(@tangent) + {eps}"},
        {RESULT: f"@base + {result}" if base else result},
    )


def karcher(terms: Terms) -> Formula:
    """The Karcher mean of all directions, with the mean of the lengths.

    All points of the iteration are sums of the models' directions. So only the factors of these sums are
    computed, from the cosines between the models: in float64, and without another pass over the tensors.
    """
    count = len(terms.terms)
    if count == 1:
        return ({RESULT: "@m0"},)
    numbers = range(count)
    settings = f"{int(terms.value('max_iter'))}, {terms.value('tol')!r}"
    sums, result = summed("y", [f"cast(@e[{i}], @x{i}.dtype) * @x{i}" for i in numbers])
    return (
        each(numbers, "x{}", "@m{}"),
        each(numbers, "n{}", "norm(cast(@x{}, 'float64'))"),
        each(numbers, "u{}", "cast(@x{0}, 'float64') / where(@n{0} == 0, 1.0, @n{0})"),
        {f"g{i}_{j}": f"sum(@u{i} * @u{j})" for i in numbers for j in range(i, count)},
        {"n": _stacked(f"@n{i}" for i in numbers), **{f"g{i}": _row(i, count) for i in numbers}},
        {"g": _stacked(f"@g{i}" for i in numbers)},
        {"e": f"karcher_weights(@g, @n, {settings})"},
        *sums,
        {RESULT: result},
    )


def _row(i: int, count: int) -> str:
    """The cosines between a model and all models."""
    return _stacked(f"@g{min(i, j)}_{max(i, j)}" for j in range(count))


def _stacked(texts: Iterable[str]) -> str:
    return f"stack([{', '.join(texts)}])"
