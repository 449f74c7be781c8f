"""A merge as a recipe: a rule makes all tensors with the same terms whose names are a family."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import FunctionError, PlanError
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.merging.families import Family, families
from ckpt_surgery.merging.formulas import formula
from ckpt_surgery.merging.outputs import Listings
from ckpt_surgery.merging.reading import LoadedConfig
from ckpt_surgery.merging.slices import models_of
from ckpt_surgery.merging.steps import BASE, RESULT, Formula
from ckpt_surgery.merging.terms import Term, Terms, terms_of

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
    groups = terms_of(loaded, listings, names)
    formulas = _formulas(loaded, groups, seed)
    tails: dict[tuple[str, ...], str] = {}
    rules = [
        _rule(terms, formulas[terms], family, tails.setdefault(family.tails, f"t{len(tails)}"))
        for terms, keys in groups.items()
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
    loaded: LoadedConfig, groups: Mapping[Terms, Sequence[str]], seed: int
) -> Mapping[Terms, Formula]:
    found: dict[Terms, Formula] = {}
    findings: list[Finding] = []
    for terms, names in groups.items():
        try:
            found[terms] = formula(terms, seed)
        except FunctionError as error:
            for problem in error.problems:
                message = f"{few_keys(names)}: {problem.message}"
                findings.append(Finding(("merge_method",), message, hint=problem.hint))
    if findings:
        raise PlanError(*loaded.problems(findings))
    return found


def _rule(terms: Terms, formula: Formula, family: Family, tails: str) -> dict[str, Any]:
    """The rule that makes the tensors of a family. `tails`: the table's entry for the ends of their names."""
    tensors = {f"m{i}": term for i, term in enumerate(terms.terms, 1)}
    if terms.base is not None:
        tensors[BASE] = terms.base
    head = {"add": family.template, "for": family.variables(f"{TAILS}[{tails!r}]")}
    if (copied := tensors.get(formula[RESULT])) is not None:
        return {**head, "value": _cast(_read(copied, family), copied.dtype, terms.dtype)}
    used = {name for text in formula.values() for name in _NAME.findall(text)}
    work = WIDE if any(term.dtype == WIDE for term in tensors.values()) else NARROW
    let = {
        name: _shaped(_cast(_read(term, family), term.dtype, work), terms, "[1]")
        for name, term in tensors.items()
        if name in used
    }
    let |= {name: text for name, text in formula.items() if name != RESULT}
    return {**head, "let": let, "value": _cast(_shaped(formula[RESULT], terms, "[]"), work, terms.dtype)}


def _read(term: Term, family: Family) -> str:
    """The tensor of a model that has the same name as the result's, or that of another layer."""
    return f"{term.source}[{family.expression(term.offset) if term.offset else 'key'}]"


def _shaped(text: str, terms: Terms, shape: str) -> str:
    """A tensor without axes in another shape; others as they are."""
    return f"reshape({text}, {shape})" if terms.scalar else text


def _cast(text: str, dtype: str, wanted: str) -> str:
    return text if dtype == wanted else f"cast({text}, '{wanted}')"
