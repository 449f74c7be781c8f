"""Methods that add to the base what the models differ from it, as steps of `formulas`.

Sparsified: TIES (Yadav et al. 2023), DARE (Yu et al. 2023), Model Breadcrumbs (Davari and Belilovsky 2023),
DELLA (Deep et al. 2024), SCE (Wan et al. 2024). Also Model Stock (Jang et al. 2024), RAM, NearSwap and Arcee
Fusion.
"""

from collections.abc import Mapping, Sequence

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging.steps import (
    MASK,
    RESULT,
    Formula,
    Step,
    each,
    over,
    product,
    summed,
    total_of,
    used,
)
from ckpt_surgery.merging.terms import Term, Terms

LEAST_NORM = 1e-7
"""Differences that are smaller altogether are not brought back to their former size."""
FEWEST = 1e-6
"""Smallest sum of weights, or product of norms, that is divided by."""


def task_arithmetic(terms: Terms) -> Formula:
    """The base and the weighted differences."""
    weighted = used(terms, "(@m{} - @base)")
    if not weighted:
        return ({RESULT: "@base"},)
    return total_of(weighted, lambda text: f"@base + {_scaled(terms, text)}", ["base"])


def _scaled(terms: Terms, text: str) -> str:
    """A sum of weighted differences as it is added to the base: divided by the weights' sum, times lambda."""
    total = sum(term.value("weight") for term in terms.terms) if terms.holds("normalize") else 1.0
    return product(terms.value("lambda"), over(text, total if abs(total) >= 1e-8 else 1.0))


# --- sparsified -------------------------------------------------------------------------------------------


def sparsified(terms: Terms, seed: int) -> Formula:
    """Weighted differences of which each model keeps some, and an election of signs where there is one."""
    counted = [i for i, term in enumerate(terms.terms) if term.value("weight") != 0]
    if not counted:
        return ({RESULT: "@base"},)
    kept = {f"s{i}": _kept(terms, i) for i in counted}
    steps: list[Step] = [{"base": "@base", **{f"d{i}": f"@m{i} - @base" for i in counted}}]
    if any(f"@{MASK}" in text for text in kept.values()):
        steps.append({f"{MASK}{i}": _mask(terms, i, seed) for i in counted if f"@{MASK}" in kept[f"s{i}"]})
    steps.append(kept)
    if terms.holds("rescale") and any(kept[f"s{i}"] != f"@d{i}" for i in counted):
        before = {f"b{i}": f"sum(abs(@d{i}))" for i in counted}
        after = {f"a{i}": f"sum(abs(@s{i}))" for i in counted}
        small = f"< {LEAST_NORM!r}"
        factors = {f"f{i}": f"where(minimum(@b{i}, @a{i}) {small}, 1.0, @b{i} / @a{i})" for i in counted}
        steps += [{**before, **after}, factors, {f"s{i}": f"@f{i} * @s{i}" for i in counted}]
    weighted = {f"w{i}": product(terms.terms[i].value("weight"), f"@s{i}") for i in counted}
    steps.append(weighted)
    return (*steps, *(_elected(terms, counted) if _elects(terms) else _all(terms, counted)))


def _elects(terms: Terms) -> bool:
    """Whether only what agrees in sign with the sum is added."""
    return terms.method == "della" or terms.method.endswith("ties")


def _all(terms: Terms, counted: Sequence[int]) -> Formula:
    steps, total = summed("t", [f"@w{i}" for i in counted])
    return (*steps, {RESULT: f"@base + {_scaled(terms, total)}"})


def _elected(terms: Terms, counted: Sequence[int]) -> Formula:
    totals, total = summed("t", [f"@w{i}" for i in counted])
    agreeing = {f"v{i}": f"where(@w{i} * @sign > 0, 1.0, 0.0)" for i in counted}
    sums, mixed = summed("x", [f"@v{i} * @w{i}" for i in counted])
    result, last = "@mixed", {"mixed": mixed}
    if terms.holds("normalize"):
        weights = [product(terms.terms[i].value("weight"), f"@v{i}") for i in counted]
        more, weight = summed("y", weights)
        sums = [*sums, *more]
        result, last = "@mixed / where(@weights == 0, 1.0, @weights)", {"mixed": mixed, "weights": weight}
    return (
        *totals,
        {"sign": f"where({total} >= 0, 1.0, -1.0)"},
        agreeing,
        *sums,
        last,
        {RESULT: f"@base + {product(terms.value('lambda'), result)}"},
    )


def _kept(terms: Terms, i: int) -> str:
    """A difference with zeros where the model's share is dropped."""
    term, x = terms.terms[i], f"@d{i}"
    density = term.value("density")
    if density >= 1:
        return x
    if density <= 0:
        return f"0.0 * {x}"
    if terms.method == "ties":
        return f"where(topk_mask({x}, {_at_least(1, _part(density, x))}), {x}, 0.0)"
    if terms.method.startswith(("dare", "della")):
        return f"where(@{MASK}{i}, {x}, 0.0)"
    kept, largest = _part(density, x), _part(term.value("gamma"), x)
    dropped = f"({largest} if {largest} + {kept} < {x}.size else {x}.size - {kept})"
    inner = f"where(topk_mask({x}, {dropped} + {kept}), {x}, 0.0)"
    return f"where(topk_mask({x}, {dropped}), 0.0, {inner})"


def _part(share: float, x: str) -> str:
    """The number of elements that are a share of all."""
    return f"int({share!r} * {x}.size)"


def _at_least(least: int, number: str) -> str:
    return f"({number} if {number} > {least} else {least})"


def _mask(terms: Terms, i: int, seed: int) -> str:
    """A random mask of the elements that a model keeps. The seed and the model's number tell masks apart."""
    share = _shares(terms.terms[i], i) if terms.method.startswith("della") else _density(terms.terms[i])
    return f"random_mask(@d{i}, {share}, {seed}, model={i})"


def _density(term: Term) -> str:
    return repr(term.value("density"))


def _shares(term: Term, i: int) -> str:
    """The probability of each element: `density` and up to `epsilon` more or less, by the rank of its
    magnitude in its row, which is along the second axis."""
    density, epsilon = term.value("density"), term.value("epsilon")
    if density - epsilon <= 0 or density + epsilon >= 1:
        raise FunctionError(
            f"`density` {density!r} with `epsilon` {epsilon!r}: the probabilities go from `density - "
            "epsilon` to `density + epsilon`; they have to lie between 0 and 1",
            hint="Take a smaller `epsilon`.",
        )
    axis = f"(1 if @d{i}.ndim > 1 else 0)"
    length = f"@d{i}.shape[{axis}]"
    ranks = f"cast(ranks(abs(@d{i}), {axis}), 'float32')"
    return f"{density - epsilon!r} + {ranks} / ({length} - 1 if {length} > 1 else 1) * 2.0 * {epsilon!r}"


# --- others -----------------------------------------------------------------------------------------------


def nearswap(terms: Terms) -> Formula:
    """The base, and the other model where the two differ by little."""
    share = f"clip({terms.value('t')!r} / maximum(abs(@base - @m0), {FEWEST!r}), 0, 1)"
    result = "@share * @m0 + (1 - @share) * @base"
    return ({"base": "@base", "m0": "@m0", "share": share}, {RESULT: result})


def ram(terms: Terms) -> Formula:
    """The mean of the differences that are large enough; what one model alone has may count for more."""
    numbers = range(len(terms.terms))
    epsilon = terms.value("epsilon")
    counted, count = summed("t", [f"@c{i}" for i in numbers])
    steps: list[Step] = [
        {"base": "@base", **each(numbers, "d{}", "@m{} - @base")},
        each(numbers, "c{}", f"where(abs(@d{{}}) > {epsilon!r}, 1.0, 0.0)"),
        *counted,
        {"count": count},
    ]
    if terms.method == "ram":
        sums, total = summed("s", [f"@c{i} * @d{i}" for i in numbers])
        return (*steps, *sums, {RESULT: f"@base + {total} / maximum(@count, 1.0)"})
    r, alpha = terms.value("r"), terms.value("alpha")
    one = {"one": "where(@count == 1, 1.0, 0.0)", "many": "where(@count > 1, 1 / maximum(@count, 1.0), 0.0)"}
    counts = {
        **each(numbers, "n{}", "sum(@c{} * @one)"),
        **each(numbers, "k{}", "sum(where(@many > 0, @c{}, 0.0))"),
    }
    share = f"1 + {r!r} * clip(@k{{0}} / maximum(@n{{0}}, {epsilon!r}), 0, {alpha!r})"
    sums, total = summed("s", [f"@c{i} * @d{i} * (@l{i} * @one + @many)" for i in numbers])
    return (*steps, one, counts, each(numbers, "l{}", share), *sums, {RESULT: f"@base + {total}"})


def model_stock(terms: Terms) -> Formula:
    """Between the base and the mean of the models, the nearer to the mean the smaller the angles are."""
    count, axis = len(terms.terms), ", axis=-1, keepdims=True" if terms.holds("filter_wise") else ""
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    cosines = {f"c{i}_{j}": f"clip(@p{i}_{j} / maximum(@n{i} * @n{j}, {FEWEST!r}), -1, 1)" for i, j in pairs}
    share = f"where(abs(@below) < {FEWEST!r}, 0.0, {count} * @cos / @below)"
    means, total = summed("s", [f"@m{i}" for i in range(count)])
    mean: Step = {"mean": f"{total} / {count}"}
    first, *middle = [*means, mean]
    sums, added_up = summed("e", [f"@{name}" for name in cosines])
    return (
        {"base": "@base", **first, **each(range(count), "d{}", "@m{} - @base")},
        *middle,
        {
            **each(range(count), "n{}", f"norm(@d{{}}{axis})"),
            **{f"p{i}_{j}": f"sum(@d{i} * @d{j}{axis})" for i, j in pairs},
        },
        cosines,
        *sums,
        {"cos": f"{added_up} / {len(pairs)}"},
        {"below": f"1 + {count - 1} * @cos"},
        {"t": share},
        {RESULT: "@t * @mean + (1 - @t) * @base"},
    )


def sce(terms: Terms) -> Formula:
    """Differences weighted by their mean squares, where the signs agree.

    With `select_topk`, only where they differ most from one another.
    """
    numbers = range(len(terms.terms))
    share = terms.value("select_topk")
    if share <= 0:
        return ({RESULT: "@base"},)
    sums, total = summed("t", [f"@d{i}" for i in numbers])
    squares, square = summed("r", [f"@q{i}" for i in numbers])
    products, mixed = summed("x", [f"@v{i} * @d{i}" for i in numbers])
    weights, weight = summed("y", [f"@v{i}" for i in numbers])
    return (
        {"base": "@base", **each(numbers, "d{}", "@m{} - @base")},
        *(_selected(len(numbers), share) if share < 1 else ()),
        *sums,
        {"sign": f"where({total} >= 0, 1.0, -1.0)", **each(numbers, "q{}", "mean(@d{0} * @d{0})")},
        *squares,
        {"squares": square},
        each(numbers, "w{}", f"where(@squares < {FEWEST!r}, {1 / len(numbers)!r}, @q{{}} / @squares)"),
        each(numbers, "v{}", "where(@d{0} * @sign > 0, 1.0, 0.0) * @w{0}"),
        *products,
        *weights,
        {"mixed": mixed, "weights": weight},
        {RESULT: f"@base + @mixed / maximum(@weights, {FEWEST!r})"},
    )


def _selected(count: int, share: float) -> Formula:
    """The differences with zeros where their variance among the models is small."""
    sums, total = summed("t", [f"@d{i}" for i in range(count)])
    squares, square = summed("r", [f"(@d{i} - @mean) * (@d{i} - @mean)" for i in range(count)])
    return (
        *sums,
        {"mean": f"{total} / {count}"},
        *squares,
        {"variance": f"{square} / {count}"},
        {"selected": f"top_share_mask(@variance, {share!r})"},
        each(range(count), "d{}", "where(@selected, @d{0}, 0.0)"),
    )


def arcee_fusion(terms: Terms) -> Formula:
    """The differences that matter most, by their size and by how the rows' distributions differ."""
    quartiles: Mapping[str, float] = {"q1": 0.25, "q2": 0.5, "q3": 0.75}
    orders = {
        name: f"min(where(topk_mask(@i, @i.size - int({share!r} * (@i.size - 1))), @i, @most))"
        for name, share in quartiles.items()
    }
    softmax = "exp(@{0} - max(@{0}, axis=-1, keepdims=True))"
    return (
        {"base": "@base", "m": "@m0"},
        {"p": softmax.format("m"), "q": softmax.format("base")},
        {name: f"@{name} / sum(@{name}, axis=-1, keepdims=True) + 1e-08" for name in "pq"},
        {"i": "abs(@m - @base) * sum(@p * log(@p / @q), axis=-1, keepdims=True)"},
        {"most": "max(@i)"},
        orders,
        {RESULT: "@base + where(@i >= @q2 + 1.5 * (@q3 - @q1), @m - @base, 0.0)"},
    )
