"""Every error that the language promises, with the whole of its message: line, caret, keys, what to do.

The cases are in tests/data/messages, one after the other:

    === what is wrong
    the recipe
    --- source, or another source's name
    key  dtype[shape], or the kind of the leaf
    --- target (a checkpoint), or listing (keys, shapes and dtypes only)
    --- set, one NAME=VALUE per line
    --- memory, in bytes
    --- orbax (as the format of the destination)
    --- says
    the message
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.errors import DataError, SurgeryError
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.formats.orbax.unsupported import unsupported
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.planner.planning import make_plan
from tests.support.memory import MemorySink, MemorySource
from tests.support.plans import COMPUTED, MEMORY, plan_of

DIRECTORY = Path(__file__).parent / "data" / "messages"
OPTIONS = ("target", "listing", "set", "memory", "orbax", "says")


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    recipe: str
    sections: Mapping[str, Sequence[str]]

    def leaves(self, section: str) -> dict[str, str]:
        return dict(re.split(r"  +", line, maxsplit=1) for line in self.sections[section])

    def run(self) -> None:
        """Makes the plan; a recipe that is wrong by itself does not get that far."""
        overrides = self.sections.get("set", ())
        target = next((name for name in ("target", "listing") if name in self.sections), None)
        sources = [self.leaves(name) for name in self.sections if name not in OPTIONS]
        if not sources:
            parse_recipe(self.recipe, "recipe.yaml", overrides)
            return
        plan_of(
            self.recipe,
            *sources,
            target=None if target is None else self.leaves(target),
            readable=target != "listing",
            overrides=overrides,
            memory=int("".join(self.sections.get("memory", ())) or MEMORY),
            unsupported=unsupported if "orbax" in self.sections else lambda leaves: [],
        )


def cases() -> Iterator[Case]:
    for path in sorted(DIRECTORY.glob("*.txt")):
        for text in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
            head, *sections = re.split(r"^--- ", text, flags=re.MULTILINE)
            title, _, recipe = head.partition("\n")
            named = [section.partition("\n") for section in sections]
            yield Case(path.stem, title, recipe, {name: body.splitlines() for name, _, body in named})


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}: {case.title}")
def test_every_message_is_exactly_the_one_that_is_promised(case: Case) -> None:
    with pytest.raises(SurgeryError) as caught:
        case.run()
    told = "\n".join(case.sections["says"])
    assert str(caught.value) == told
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}: {case.title}")
def test_every_problem_points_into_the_recipe(case: Case) -> None:
    """Each has file, line, column, the line itself and a caret under what is meant."""
    with pytest.raises(SurgeryError) as caught:
        case.run()
    for problem in caught.value.problems:
        place = problem.place
        # Of what the command line says, and of leaves that no rule speaks of, there is no line.
        assert (place is None) == (case.file == "no-rule"), problem.message
        if place is None:
            continue
        assert place.line is not None
        assert case.recipe.splitlines()[place.line - 1] == place.text
        assert 1 <= place.column <= place.column + place.width - 1 <= len(place.text)


RANGE = "(1 of 2 values here, at [1]); on_overflow='saturate' clamps"
ONLY_VALUES = [
    (
        "cast(x, 'float16')",
        np.float32([1, 70000]),
        f"cast to float16: 70000.0 is out of range, -65504.0 to 65504.0 {RANGE}",
    ),
    (
        "cast(x, 'float8_e4m3fn')",
        np.float32([1, 500]),
        f"cast to float8_e4m3fn: 500.0 is out of range, -448.0 to 448.0 {RANGE}",
    ),
    ("cast(x, 'int8')", np.float32([1, -400]), f"cast to int8: -400.0 is out of range, -128 to 127 {RANGE}"),
    ("cast(x, 'int8')", np.int32([1, 1000]), f"cast to int8: 1000 is out of range, -128 to 127 {RANGE}"),
    (
        "cast(x, 'uint8', on_overflow='saturate')",
        np.float32([np.nan]),
        "cast to uint8: the dtype has no NaN (1 of 1 values here, at [0]); replace it first (`where`)",
    ),
    (
        "sum(x)",
        np.int8([100, 100]),
        "the result is int8: 200 is out of range, -128 to 127 (1 of 1 values here)\n"
        "  Write cast(…, 'int64') around the value to keep it as it was computed, "
        "or cast(…, 'int8', on_overflow='saturate') to clamp it.",
    ),
    (
        "x * 2",
        np.float16([1, 60000]),
        "the result is float16: 120000.0 is out of range, -65504.0 to 65504.0 (1 of 2 values here, at [1])\n"
        "  Write cast(…, 'float32') around the value to keep it as it was computed, "
        "or cast(…, 'float16', on_overflow='saturate') to clamp it.",
    ),
    (
        "x + x",
        np.int8([1, 100]),
        "`+`: 100 + 100 is out of range of int8, -128 to 127 (1 of 2 values here)\n"
        "  Write cast(…, 'int64') around its operands to compute it in 64 bits.",
    ),
    (
        "1 + (x - 1)",
        np.uint8([1, 0]),
        "`-`: 0 - 1 is out of range of uint8, 0 to 255 (1 of 2 values here)\n"
        "  Write cast(…, 'int64') around its operands to compute it in 64 bits.",
    ),
    (
        "sum(x, 1)",
        np.int64([[1, 1, 1], [2**62] * 3]),
        "`sum` at [1] is 13835058055282163712, out of range of int64, "
        "-9223372036854775808 to 9223372036854775807\n"
        "  Write cast(…, 'float64') around its operands to compute it as a float, which rounds.",
    ),
    ("7 // x", np.int32([0]), "`//`: an integer is divided by zero"),
    (
        "x ** source['a']",
        np.int32([-2]),
        "`**`: an integer is raised to a negative power\n  Cast it to a float type first.",
    ),
    (
        "quantize(x, 'int8', 0)[0]",
        np.float32([np.inf]),
        "`quantize`: the array has NaN or infinite values; replace them first (`where`)",
    ),
]


@pytest.mark.parametrize(("value", "array", "says"), ONLY_VALUES, ids=str)
def test_errors_that_only_the_values_show_name_the_key_and_the_rule(
    value: str, array: np.ndarray, says: str
) -> None:
    """It ends the run with the key and the line of the rule, and exit code 1."""
    line = f'  - {{match: a, value: "{value}"}}'
    loaded = parse_recipe(f"version: 1\nrules:\n{line}\n", "recipe.yaml")
    source = MemorySource({"a": array})
    plan = make_plan(loaded, {"source": source.leaves()}, None, [], {}, COMPUTED, MEMORY, 2)
    sink = MemorySink(outputs_of(plan))
    with pytest.raises(DataError) as caught:
        run(plan, {"source": source}, sink, Means(MEMORY, 2))
    place = f"recipe.yaml:3:23  rules[0].value\n    {line}\n{' ' * 26}{'^' * (len(value) + 2)}"
    assert str(caught.value) == f"{place}\n  `a`: {says}"
    assert caught.value.exit_code == 1
    assert not sink.finished


def test_no_two_cases_have_the_same_title() -> None:
    titles = [case.title for case in CASES]
    assert len(set(titles)) == len(titles) > 90
