"""What the parts of an expression do when it is evaluated, and at which characters their errors point."""

import operator
from collections.abc import Callable
from typing import Any

import pytest

from ckpt_surgery.core.errors import FunctionError, SourceError
from ckpt_surgery.language import closures
from ckpt_surgery.language.closures import Evaluator
from ckpt_surgery.language.scope import CallUse, ExpressionError, Scope, Unavailable
from ckpt_surgery.language.values import MAX_LIST
from tests.support.lazy_arrays import lazy

EMPTY = Scope({})
SPAN = (3, 8)
ARRAY = lazy((2, 3))


def constant(value: Any) -> Evaluator:
    return lambda scope: value


def failing(error: Exception) -> Evaluator:
    def run(scope: Scope) -> Any:
        raise error

    return run


class Noted:
    """Parts with given values, which note the order in which they are evaluated."""

    def __init__(self, *values: Any) -> None:
        self.seen: list[Any] = []
        self.parts = [self._part(value) for value in values]

    def _part(self, value: Any) -> Evaluator:
        def run(scope: Scope) -> Any:
            self.seen.append(value)
            return value

        return run


def problem(part: Evaluator, scope: Scope = EMPTY) -> tuple[str, tuple[int, int], str | None]:
    """Message, span and hint of the error that evaluating a part gives."""
    with pytest.raises(ExpressionError) as caught:
        part(scope)
    return caught.value.message, (caught.value.start, caught.value.end), caught.value.hint


def use(name: str) -> CallUse:
    """A call `name(…)` that begins at offset 3."""
    return CallUse(name, 0, (), None, 3, 3 + len(name) + 5, 3 + len(name))


# --- actions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(7,), (7, 2), ()])
def test_an_action_gets_the_values_of_its_parts_in_order(values: tuple[int, ...]) -> None:
    noted = Noted(*values)
    assert closures.located(lambda *given: given, SPAN, *noted.parts)(EMPTY) == values
    assert noted.seen == [*values]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", [FunctionError, SourceError])
def test_an_error_of_an_action_points_at_the_action(kind: type[Exception], count: int) -> None:
    def action(*values: Any) -> Any:
        raise kind("no", hint="Say yes.")  # type: ignore[call-arg]

    assert problem(closures.located(action, SPAN, *[constant(1)] * count)) == ("no", SPAN, "Say yes.")


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_of_a_part_points_at_the_part(count: int) -> None:
    parts = [failing(ExpressionError("no such leaf", 4, 5)), constant(1)][:count]
    assert problem(closures.located(operator.add, SPAN, *parts)) == ("no such leaf", (4, 5), None)


# --- names ------------------------------------------------------------------------------------------


def test_a_name_stands_for_its_value() -> None:
    assert closures.named("x", SPAN)(Scope({"x": ARRAY, "y": 1})) is ARRAY


def test_an_unknown_name_points_at_itself_with_a_close_one() -> None:
    scope = Scope({"scale": 1})
    message = "unknown name `scal`; did you mean `scale`?"
    assert problem(closures.named("scal", SPAN), scope) == (message, SPAN, None)


def test_a_name_without_a_value_here_is_an_error() -> None:
    scope = Scope({"x": Unavailable("there is no leaf here", "Match one.")})
    assert problem(closures.named("x", SPAN), scope) == ("there is no leaf here", SPAN, "Match one.")


# --- lists ------------------------------------------------------------------------------------------


def test_a_sequence_is_built_from_the_values_of_its_parts_in_order() -> None:
    noted = Noted(1, "a", ARRAY)
    assert closures.sequence(tuple, noted.parts, SPAN)(EMPTY) == (1, "a", ARRAY)
    assert noted.seen == [1, "a", ARRAY]
    assert closures.sequence(list, [], SPAN)(EMPTY) == []


def test_lists_that_are_too_long_together_point_at_the_list_around_them() -> None:
    part = constant(range(MAX_LIST // 2 + 1))
    long = closures.sequence(list, [lambda scope: [*part(scope)]] * 2, SPAN)
    message, span, _ = problem(long)
    assert message.startswith("the lists are too long together")
    assert span == SPAN


def test_an_error_in_a_list_points_at_its_part() -> None:
    part = failing(ExpressionError("no", 4, 5))
    assert problem(closures.sequence(list, [constant(1), part], SPAN)) == ("no", (4, 5), None)


# --- conditions -------------------------------------------------------------------------------------


def test_a_condition_that_is_an_array_points_at_itself() -> None:
    holds = closures.condition(SPAN)
    assert [holds(0), holds(""), holds("a"), holds(None)] == [False, False, True, False]
    message, span, hint = problem(lambda scope: holds(ARRAY))
    assert (message, span) == ("an array float32[2,3] is neither true nor false", SPAN)
    assert hint == "For conditions on elements, use where(…), `&` and `|`."


@pytest.mark.parametrize(
    ("values", "symbols", "expected", "evaluated"),
    [
        ((1, 2), ["<"], True, 2),
        ((2, 1), ["<"], False, 2),
        ((1, 3, 2), ["<", ">="], True, 3),
        ((1, 3, 4), ["<", ">="], False, 3),
        ((3, 1, 2), ["<", "<"], False, 2),  # none after the first comparison that does not hold
    ],
)
def test_comparisons_evaluate_each_operand_at_most_once(
    values: tuple[int, ...], symbols: list[str], expected: bool, evaluated: int
) -> None:
    noted = Noted(*values)
    first, *others = noted.parts
    compare = closures.comparisons(first, list(zip(symbols, others, strict=True)), SPAN)
    assert compare(EMPTY) is expected
    assert noted.seen == [*values[:evaluated]]


def test_one_comparison_of_arrays_is_an_array_and_a_chain_is_an_error() -> None:
    array, one = constant(ARRAY), constant(1)
    assert closures.comparisons(array, [("<", one)], SPAN)(EMPTY).spec.dtype.name == "bool"
    message, span, _ = problem(closures.comparisons(one, [("<", array), ("<", one)], SPAN))
    assert (message, span) == ("an array bool[2,3] is neither true nor false", SPAN)


@pytest.mark.parametrize("following", [[("<", constant("a"))], [("<", constant(2)), ("<", constant("a"))]])
def test_values_that_cannot_be_compared_point_at_the_comparison(
    following: list[tuple[str, Evaluator]],
) -> None:
    message, span, _ = problem(closures.comparisons(constant(1), following, SPAN))
    assert message.startswith("`<` cannot compare ")
    assert span == SPAN


@pytest.mark.parametrize(
    ("values", "decisive", "expected", "evaluated"),
    [
        ((0, "a", 1), True, "a", 2),  # or
        ((0, ""), True, "", 2),
        ((1, 0, 2), False, 0, 2),  # and
        ((1, "a"), False, "a", 2),
    ],
)
def test_the_first_decisive_value_is_the_value(
    values: tuple[Any, ...], decisive: bool, expected: Any, evaluated: int
) -> None:
    noted = Noted(*values)
    holds: Callable[[Any], bool] = closures.condition(SPAN)
    found = closures.first_decisive([(part, holds) for part in noted.parts], decisive)(EMPTY)
    assert (found, type(found)) == (expected, type(expected))
    assert noted.seen == [*values[:evaluated]]


def test_the_last_operand_has_to_be_true_or_false_too() -> None:
    parts = [(constant(0), closures.condition((0, 1))), (constant(ARRAY), closures.condition(SPAN))]
    assert problem(closures.first_decisive(parts, True))[1] == SPAN


# --- calls ------------------------------------------------------------------------------------------


def test_a_call_gives_the_function_its_arguments() -> None:
    arguments, keywords = [constant("a.b")], {"new": constant("/"), "old": constant(".")}
    assert closures.call(use("replace"), arguments, keywords)(EMPTY) == "a/b"


def test_a_call_that_does_not_fit_fails_when_it_is_evaluated() -> None:
    call = closures.call(use("replace"), [constant("a.b")], {})
    assert problem(call) == ("`replace` needs `old`: replace(text, old, new)", (3, 15), None)


def test_an_unknown_function_points_at_its_name_alone() -> None:
    call = closures.call(use("replce"), [constant("a.b")], {})
    assert problem(call) == ("unknown function `replce`; did you mean `replace`?", (3, 9), None)


def test_an_error_of_a_function_points_at_the_call() -> None:
    assert problem(closures.call(use("int"), [constant("x")], {})) == (
        "`int`: 'x' is not an integer",
        (3, 11),
        None,
    )


@pytest.mark.parametrize("by_name", [False, True])
def test_an_error_of_an_argument_points_at_the_argument(by_name: bool) -> None:
    part = failing(ExpressionError("no", 7, 9))
    call = closures.call(use("int"), [] if by_name else [part], {"x": part} if by_name else {})
    assert problem(call) == ("no", (7, 9), None)


def test_a_call_with_lists_that_are_too_long_together_points_at_the_call() -> None:
    values = list(range(MAX_LIST // 2 + 1))
    call = closures.call(use("where"), [constant(ARRAY), constant(values), constant(values)], {})
    message, span, _ = problem(call)
    assert message.startswith("the lists are too long together")
    assert span == (3, 13)


# --- count ------------------------------------------------------------------------------------------


def test_count_asks_the_scope_with_the_pattern() -> None:
    asked: list[str] = []

    def keys(pattern: str) -> int:
        asked.append(pattern)
        return 5

    assert closures.count(constant("a.*"), SPAN)(Scope({}, count=keys)) == 5
    assert asked == ["a.*"]


def broken(pattern: str) -> int:
    raise FunctionError("missing )")


@pytest.mark.parametrize(
    ("pattern", "scope", "message"),
    [
        (3, Scope({}, count=len), "`count` takes a regular expression as text, not the number 3"),
        ("a", EMPTY, "`count` has no keys to count here"),
        ("(", Scope({}, count=broken), "missing )"),
    ],
)
def test_errors_of_count_point_at_the_call(pattern: Any, scope: Scope, message: str) -> None:
    assert problem(closures.count(constant(pattern), SPAN), scope) == (message, SPAN, None)
