"""Problems of a pass: at their places, each once, and together."""

from dataclasses import replace

import pytest

from ckpt_surgery.core.errors import Code, PlanError, Problem, SurgeryError
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.planner.problems import MANY, Problems
from tests.support.plans import configs

TEXT = """version: 1
unmatched: keep
passes:
- rules: [{match: a, value: x + 1}]
- unmatched: drop
  rules:
  - {match: b, value: x + 1}
  - match: c
    to: {d: x, e: x}
"""


def problems_of(pass_index: int = 1) -> Problems:
    return Problems(parse_recipe(TEXT, "recipe.yaml"), pass_index)


def raised(problems: Problems) -> tuple[Problem, ...]:
    with pytest.raises(PlanError) as caught:
        problems.raise_all()
    return caught.value.problems


def test_a_problem_at_several_keys_is_one() -> None:
    problems = problems_of()
    for key in ("l/0", "l/1", "l/2", "m"):
        problems.at(0, ("value",), SurgeryError("it is wrong", hint="Make it right."), key)
    (problem,) = raised(problems)
    assert (problem.message, problem.hint) == ("it is wrong (at `l/{0..2}`, `m`)", "Make it right.")
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (7, 23)


def test_a_problem_of_a_fields_name() -> None:
    problems = problems_of()
    problems.at(1, ("to", "e"), PlanError("the name"), at_key=True)
    problems.at(1, ("to", "e"), PlanError("the value"))
    columns = {problem.message: problem.place.column for problem in raised(problems) if problem.place}
    assert columns == {"the name": 16, "the value": 19}


def test_of_one_place_the_first_few_are_shown_and_more_of_those_that_belong_to_no_rule() -> None:
    at_rule, general = problems_of(), problems_of()
    for i in range(10):
        at_rule.at(0, ("value",), PlanError(f"problem {i}"))
    assert [p.message for p in raised(at_rule)] == ["problem 0", "problem 1", "problem 2, and 7 more like it"]
    for i in range(MANY + 2):
        general.general(Problem(f"problem {i}"))
    found = raised(general)
    assert (len(found), found[-1].message) == (MANY, f"problem {MANY - 1}, and 2 more like it")


def test_problems_with_shapes_tell_which_sizes_no_config_gives() -> None:
    params = "{heads: {default: 32, config: num_heads}}"
    text = f"version: 1\nparams: {params}\nrules: [{{match: a, value: x / heads}}]\n"
    loaded = replace(parse_recipe(text, "recipe.yaml"), configs=configs(None))
    loaded.used_defaults.add("heads")
    hints = []
    for code in (Code.ARGUMENTS, Code.NO_ENTRY):
        problems = Problems(loaded, 0)
        problems.at(0, ("value",), SurgeryError("it does not split", hint="Mend it.", code=code))
        hints.append(raised(problems)[0].hint)
    assert hints == ["Mend it. By default heads=32 (there is no config.json).", "Mend it."]
