"""What the methods compute, as expressions of the recipe language.

In an expression `m1`, `m2`, … are the tensors of the models in order and `b` is the base's, all in float32
(float64 where one of them is). What several expressions need has a name, so that it is written and computed
once.

The formulas are those of mergekit 0.1.5, whose methods are described in its documentation and in the papers
that it cites.
"""

from collections.abc import Callable, Mapping

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.merging import differences, spheres
from ckpt_surgery.merging.steps import RESULT, Formula, counted, over, product, weighted
from ckpt_surgery.merging.terms import COPY, Terms


def formula(terms: Terms, seed: int) -> Formula:
    """What gives the tensors with these terms. `seed`: for methods that draw at random.

    Raises FunctionError for values of parameters that the method cannot have.
    """
    if terms.method in SPARSIFIED:
        return differences.sparsified(terms, seed)
    return FORMULAS[terms.method](terms)


def copied(terms: Terms) -> Formula:
    """The tensor as it is."""
    return {RESULT: "m1"}


def passthrough(terms: Terms) -> Formula:
    """The tensor, times `scale`."""
    scale = dict(terms.terms[0].values)["scale"]
    return {RESULT: "m1" if scale is None else product(scale, "m1")}


def linear(terms: Terms) -> Formula:
    """The weighted mean, or the weighted sum."""
    weights = counted(terms)
    total = sum(term.value("weight") for term in terms.terms) if terms.holds("normalize") else 1.0
    if total == 0:
        hint = "`normalize: false` does not divide by their sum."
        raise FunctionError("the weights add up to 0", hint=hint)
    if list(weights.values()) == [total]:
        return {RESULT: f"m{min(weights)}"}
    return {RESULT: over(weighted(weights or {1: 0.0}, "m{}"), total)}


FORMULAS: Mapping[str, Callable[[Terms], Formula]] = {
    COPY: copied,
    "arcee_fusion": differences.arcee_fusion,
    "karcher": spheres.karcher,
    "linear": linear,
    "model_stock": differences.model_stock,
    "multislerp": spheres.multislerp,
    "nearswap": differences.nearswap,
    "nuslerp": spheres.nuslerp,
    "passthrough": passthrough,
    "ram": differences.ram,
    "ramplus_tl": differences.ram,
    "sce": differences.sce,
    "slerp": spheres.slerp,
    "task_arithmetic": differences.task_arithmetic,
}
SPARSIFIED = frozenset(
    {"breadcrumbs", "breadcrumbs_ties", "dare_linear", "dare_ties", "della", "della_linear", "ties"}
)
"""Methods of `differences.sparsified`."""
