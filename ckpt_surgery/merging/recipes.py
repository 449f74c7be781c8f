"""A merge as a recipe: a rule makes all tensors with the same terms whose names are a family.

Where every formula has one step, the recipe has one pass. Otherwise each pass makes the values of one step,
as leaves `g0/NAME/TENSOR`, with a number for each formula, and the last pass gives the results their names.
Leaves between passes are never written anywhere.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import FunctionError, PlanError
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.merging.families import Family, families
from ckpt_surgery.merging.formulas import formula
from ckpt_surgery.merging.outputs import Listings
from ckpt_surgery.merging.reading import LoadedConfig
from ckpt_surgery.merging.slices import models_of
from ckpt_surgery.merging.steps import MASK, RESULT, VALUE, Formula, Step
from ckpt_surgery.merging.terms import Term, Terms, terms_of

BASE = "base"
TAILS = "tails"
"""Name of the table of the ends of names."""
MODEL = "model"
_MODEL = re.compile(r"@m(\d+)")
_WHOLE = re.compile(r"@(m\d+|base)")
"""A tensor of a model as it is."""
DROPPED = 100
"""Values that one rule drops: patterns have at most 2,000 characters."""
NAME = "name"
"""Name of the group for a tensor's name in the patterns of later passes."""
WIDE, NARROW = "float64", "float32"


def merge_recipe(loaded: LoadedConfig, listings: Listings, seed: int = 0) -> dict[str, Any]:
    """The recipe that merges models as a configuration says; its sources are those of `models_of`, in order.

    `listings`: the leaves of each model. `seed`: for methods that draw at random. Raises PlanError where the
    models do not fit the configuration or one another, with every problem and its place.
    """
    names = source_names(loaded)
    groups = terms_of(loaded, listings, names)
    formulas = _formulas(loaded, groups, seed)
    rules = _Rules(groups, formulas)
    only = all(len(steps) == 1 for steps in formulas.values())
    body = rules.one_pass() if only else rules.passes(next(iter(names.values())))
    return {
        "version": 1,
        "description": f"A merge by the method {loaded.config.merge_method}.",
        "sources": list(names.values()),
        "tables": {TAILS: {entry: list(tails) for tails, entry in rules.tails.items()}},
        "unmatched": "drop",
        **body,
    }


def source_names(loaded: LoadedConfig) -> Mapping[str, str]:
    """The name of the recipe's source for each model: `base`, if there is one, and `model_1`, `model_2`, …"""
    has_base = loaded.config.base_model is not None
    return {
        model: BASE if has_base and i == 0 else f"{MODEL}_{i + (not has_base)}"
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


class _Rules:
    """Makes the rules, and gathers the ends of names that they share."""

    def __init__(self, groups: Mapping[Terms, Sequence[str]], formulas: Mapping[Terms, Formula]) -> None:
        self._families = {terms: list(families(names)) for terms, names in groups.items()}
        self._formulas = formulas
        self.tails: dict[tuple[str, ...], str] = {}
        """Lists of ends of names, each with the name under which a table of the recipe has it."""

    def one_pass(self) -> dict[str, Any]:
        """The rules of a recipe whose formulas have one step."""
        rules = [
            self._adding(terms, family, "", self._formulas[terms][0][RESULT])
            for terms, members in self._families.items()
            for family in members
        ]
        return {"rules": rules}

    def passes(self, first: str) -> dict[str, Any]:
        """The passes of a recipe with longer formulas. `first`: the source whose tree the passes change."""
        beginning = [
            self._adding(terms, family, f"g{number}/{name}/", text)
            for number, (terms, members) in enumerate(self._families.items())
            for family in members
            for name, text in self._formulas[terms][0].items()
        ]
        passes = [{"name": "step 1", "unmatched": "keep", "rules": beginning}]
        for index in range(1, max(map(len, self._formulas.values()))):
            rules = [
                rule
                for number, terms in enumerate(self._families)
                if index < len(self._formulas[terms])
                for rule in _going_on(terms, number, self._formulas[terms], index, first)
            ]
            passes.append({"name": f"step {index + 1}", "unmatched": "keep", "rules": rules})
        renaming = {"match": rf"g\d+/{RESULT}/(?P<{NAME}>.*)", "to": f"${{{NAME}}}"}
        return {"passes": [*passes, {"name": "names", "unmatched": "drop", "rules": [renaming]}]}

    def _adding(self, terms: Terms, family: Family, before: str, text: str) -> dict[str, Any]:
        """The rule that makes the tensors of a family. `before`: what their keys begin with."""
        is_result = not before or before.endswith(f"/{RESULT}/")
        if is_result and _WHOLE.fullmatch(text):
            term = _term(terms, text)
            value = _cast(_read(term, family), term.dtype, terms.dtype)
        else:
            value = VALUE.sub(lambda found: _wide(_term(terms, found[0]), terms, family), text)
            value = _result(value, terms) if is_result else value
        entry = self.tails.setdefault(family.tails, f"t{len(self.tails)}")
        return {
            "add": before + family.template,
            "for": family.variables(f"{TAILS}[{entry!r}]"),
            "value": value,
        }


def _going_on(terms: Terms, number: int, steps: Formula, index: int, first: str) -> Iterator[dict[str, Any]]:
    """The rules for a later step of a formula: one claims a value of the first step, which stays to the end,
    and makes the new ones; another drops values that no later step needs."""
    anchor = next(iter(steps[0]))

    def made(name: str, text: str) -> str:
        value = VALUE.sub(lambda found: _made_before(found[1], number, anchor, first), text)
        return _result(value, terms) if name == RESULT else value

    outcomes = {
        f"{_folder(name, number)}/${{{NAME}}}": made(name, text) for name, text in steps[index].items()
    }
    kept = {f"g{number}/{anchor}/${{{NAME}}}": "x"} if index < len(steps) - 1 else {}
    yield {"match": f"g{number}/{anchor}/(?P<{NAME}>.*)", "to": {**kept, **outcomes}}
    unneeded = sorted(set(steps[index - 1] if index > 1 else steps[0]) | _used(steps[index]))
    kept_on = {anchor, *_used(*steps[index + 1 :])}
    gone = [name for name in unneeded if name not in kept_on and not name.startswith(MASK)]
    for start in range(0, len(gone), DROPPED):
        names = gone[start : start + DROPPED]
        yield {"match": f"g{number}/(?:{'|'.join(names)})/.*", "drop": True}


def _used(*steps: Step) -> set[str]:
    """Names of the values that are used by steps."""
    return {found for step in steps for text in step.values() for found in VALUE.findall(text)}


def _made_before(name: str, number: int, anchor: str, first: str) -> str:
    """The expression for a value of an earlier step."""
    return "x" if name == anchor else f"{first}[f'{_folder(name, number)}/{{{NAME}}}']"


def _folder(name: str, number: int) -> str:
    """What the keys of a value begin with. `number`: of the formula.

    Random masks depend on the key of their leaf, and must not depend on which tensors share a formula.
    """
    return name if name.startswith(MASK) else f"g{number}/{name}"


def _term(terms: Terms, text: str) -> Term:
    """The model that `@m0` or `@base` stands for."""
    found = _MODEL.fullmatch(text)
    if found is not None:
        return terms.terms[int(found[1])]
    assert text == f"@{BASE}"
    assert terms.base is not None
    return terms.base


def _read(term: Term, family: Family) -> str:
    return f"{term.source}[{family.expression(term.offset)}]"


def _wide(term: Term, terms: Terms, family: Family) -> str:
    """A tensor of a model, in the type that the formula is computed in."""
    wide = _cast(_read(term, family), term.dtype, _work_dtype(terms))
    return f"reshape({wide}, [1])" if terms.scalar else wide


def _result(text: str, terms: Terms) -> str:
    """The result of a formula, with the shape and the type of the tensor."""
    shaped = f"reshape({text}, [])" if terms.scalar else text
    return _cast(shaped, _work_dtype(terms), terms.dtype)


def _cast(text: str, dtype: str, wanted: str) -> str:
    return text if dtype == wanted else f"cast({text}, '{wanted}')"


def _work_dtype(terms: Terms) -> str:
    every = (*terms.terms, *(() if terms.base is None else (terms.base,)))
    return WIDE if any(term.dtype == WIDE for term in every) else NARROW
