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
from ckpt_surgery.merging.formula_inputs import COPY, FormulaInputs
from ckpt_surgery.merging.formula_texts import RESULT, Formula, counted, over, product, weighted


def formula(inputs: FormulaInputs, seed: int) -> Formula:
    """What gives the tensors with these inputs. `seed`: for methods that draw at random.

    Raises FunctionError for values of parameters that the method cannot have.
    """
    if inputs.method in SPARSIFIED:
        return differences.sparsified(inputs, seed)
    return FORMULAS[inputs.method](inputs)


def copied(inputs: FormulaInputs) -> Formula:
    """The tensor as it is."""
    return {RESULT: "m1"}


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
