"""A merge as a recipe: a rule makes all tensors with equal inputs whose names are a family."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import FunctionError, PlanError
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.merging.families import Family, families
from ckpt_surgery.merging.formula_inputs import (
    BASE,
    RESULT,
    Formula,
    FormulaInputs,
    ModelInputs,
    inputs_by_formula,
)
from ckpt_surgery.merging.formulas import formula
from ckpt_surgery.merging.models import models_of
from ckpt_surgery.merging.outputs import Listings
from ckpt_surgery.merging.reading import LoadedConfig

TAILS = "tails"
"""Name of the table of the ends of names."""
_NAME = re.compile(r"[a-z]\w*")
WIDE, NARROW = "float64", "float32"


def merge_recipe(loaded: LoadedConfig, listings: Listings, seed: int = 0) -> dict[str, Any]:
    """The recipe that merges models as a configuration says; its sources are those of `models_of`, in order.

    `listings`: the leaves of each model. `seed`: for methods that draw at random. Raises PlanError where the
    models do not fit the configuration or one another, with every problem and its place.
    """
    names = source_names(loaded)
    groups = inputs_by_formula(loaded, listings, names)
    formulas = _formulas(loaded, groups, seed)
    tails: dict[tuple[str, ...], str] = {}
    rules = [
        _rule(inputs, formulas[inputs], family, tails.setdefault(family.tails, f"t{len(tails)}"))
        for inputs, keys in groups.items()
        for family in families(keys)
    ]
    return {
        "version": 1,
        "description": f"A merge by the method {loaded.config.merge_method}.",
        "sources": list(names.values()),
        "tables": {TAILS: {entry: list(ends) for ends, entry in tails.items()}},
        "unmatched": "drop",
        "rules": rules,
    }


def source_names(loaded: LoadedConfig) -> Mapping[str, str]:
    """The name of the recipe's source for each model: `base`, if there is one, and `model_1`, `model_2`, …"""
    has_base = loaded.config.base_model is not None
    return {
        model: "base" if has_base and i == 0 else f"model_{i + (not has_base)}"
        for i, model in enumerate(models_of(loaded.config))
    }


def _formulas(
    loaded: LoadedConfig, groups: Mapping[FormulaInputs, Sequence[str]], seed: int
) -> Mapping[FormulaInputs, Formula]:
    found: dict[FormulaInputs, Formula] = {}
    findings: list[Finding] = []
    for inputs, names in groups.items():
        try:
            found[inputs] = formula(inputs, seed)
        except FunctionError as error:
            for problem in error.problems:
                message = f"{few_keys(names)}: {problem.message}"
                findings.append(Finding(("merge_method",), message, hint=problem.hint))
    if findings:
        raise PlanError(*loaded.problems(findings))
    return found


def _rule(inputs: FormulaInputs, formula: Formula, family: Family, tails: str) -> dict[str, Any]:
    """The rule that makes the tensors of a family. `tails`: the table's entry for the ends of their names."""
    tensors = {f"m{i}": model for i, model in enumerate(inputs.models, 1)}
    if inputs.base is not None:
        tensors[BASE] = inputs.base
    head = {"add": family.template, "for": family.variables(f"{TAILS}[{tails!r}]")}
    if (copied := tensors.get(formula[RESULT])) is not None:
        return {**head, "value": _cast(_read(copied, family), copied.dtype, inputs.dtype)}
    used = {name for text in formula.values() for name in _NAME.findall(text)}
    work = WIDE if any(model.dtype == WIDE for model in tensors.values()) else NARROW
    let = {
        name: _shaped(_cast(_read(model, family), model.dtype, work), inputs, "[1]")
        for name, model in tensors.items()
        if name in used
    }
    let |= {name: text for name, text in formula.items() if name != RESULT}
    return {**head, "let": let, "value": _cast(_shaped(formula[RESULT], inputs, "[]"), work, inputs.dtype)}


def _read(model: ModelInputs, family: Family) -> str:
    """The tensor of a model that has the same name as the result's, or that of another layer."""
    return f"{model.source}[{family.expression(model.offset) if model.offset else 'key'}]"


def _shaped(text: str, inputs: FormulaInputs, shape: str) -> str:
    """A tensor without axes in another shape; others as they are."""
    return f"reshape({text}, {shape})" if inputs.scalar else text


def _cast(text: str, dtype: str, wanted: str) -> str:
    return text if dtype == wanted else f"cast({text}, '{wanted}')"
