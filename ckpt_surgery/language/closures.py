"""What the parts of an expression do when it is evaluated: closures over those of their operands.

Each takes the scope and gives a value. An error in one becomes an ExpressionError that points at the span of
its part of the text, so that the functions that compute do not have to know where they are called.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import regex

from ckpt_surgery.core.errors import FunctionError, SurgeryError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.functions.base import Function, Plain
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.calls import called
from ckpt_surgery.language.operators import compared, truth
from ckpt_surgery.language.patterns import MatchBudget, compile_pattern
from ckpt_surgery.language.scope import CallUse, ExpressionError, Scope, Unavailable, Watched
from ckpt_surgery.language.spans import Span
from ckpt_surgery.language.values import bounded, listed, told
from ckpt_surgery.language.vocabulary import call_problem, unknown_name

Evaluator = Callable[[Scope], Any]


def _pointing(error: SurgeryError, span: Span) -> ExpressionError:
    problem = error.problems[0]
    return ExpressionError(problem.message, *span, problem.hint, problem.code)


def located(action: Callable[..., Any], span: Span, *parts: Evaluator) -> Evaluator:
    """Gives the values of `parts` to `action`, whose errors point at `span`."""
    if len(parts) == 1:
        (part,) = parts

        def run_one(scope: Scope) -> Any:
            value = part(scope)
            try:
                return action(value)
            except SurgeryError as error:
                raise _pointing(error, span) from None

        return run_one

    def run(scope: Scope) -> Any:
        values = [part(scope) for part in parts]
        try:
            return action(*values)
        except SurgeryError as error:
            raise _pointing(error, span) from None

    return run


def named(name: str, span: Span) -> Evaluator:
    """The value of a name."""

    def run(scope: Scope) -> Any:
        try:
            value = scope.names[name]
        except KeyError:
            message = unknown_name(name, scope.names)
            raise ExpressionError(message, *span, code=Code.UNKNOWN_NAME) from None
        if type(value) is Watched:
            value.note_use()
            return value.value
        if type(value) is Unavailable:
            raise ExpressionError(value.message, *span, value.hint, value.code)
        return value

    return run


def sequence(build: Callable[[list[Any]], Any], parts: Sequence[Evaluator], span: Span) -> Evaluator:
    """A list or a tuple of the values of `parts`."""

    def run(scope: Scope) -> Any:
        try:
            return build(listed(part(scope) for part in parts))
        except FunctionError as error:
            raise _pointing(error, span) from None

    return run


# --- conditions ---------------------------------------------------------------------------------------


def condition(span: Span) -> Callable[[Any], bool]:
    """Whether a value is true; where it is neither true nor false, the error points at `span`."""

    def holds(value: Any) -> bool:
        try:
            return truth(value)
        except SurgeryError as error:
            raise _pointing(error, span) from None

    return holds


def comparisons(first: Evaluator, following: Sequence[tuple[str, Evaluator]], span: Span) -> Evaluator:
    """`a < b < c`: each operand is evaluated once, and none after the first comparison that does not hold."""
    if len(following) == 1:
        ((symbol, other),) = following
        return located(functools.partial(compared, symbol), span, first, other)

    def run(scope: Scope) -> bool:
        left = first(scope)
        for symbol, part in following:
            right = part(scope)
            try:
                holds = truth(compared(symbol, left, right))
            except SurgeryError as error:
                raise _pointing(error, span) from None
            if not holds:
                return False
            left = right
        return True

    return run


def first_decisive(parts: Sequence[tuple[Evaluator, Callable[[Any], bool]]], decisive: bool) -> Evaluator:
    """`a or b` and `a and b`: the first value whose truth is `decisive`, else the last one."""

    def run(scope: Scope) -> Any:
        for part, holds in parts:
            value = part(scope)
            if holds(value) == decisive:
                break
        return value

    return run


# --- calls --------------------------------------------------------------------------------------------


def call(use: CallUse, arguments: Sequence[Evaluator], keywords: Mapping[str, Evaluator]) -> Evaluator:
    """A call of a function of the registry; one that does not fit its signature fails when it is evaluated.

    Until then `check` can list it with all other problems.
    """
    span = use.start, use.end
    problem = call_problem(use.name, len(arguments), tuple(keywords))
    if problem is not None:
        end = use.end if use.name in registry() else use.name_end
        return functools.partial(_fail, problem, (use.start, end))
    function: type[Function] | Plain = registry()[use.name]

    def run(scope: Scope) -> Any:
        given_by_name = {name: value(scope) for name, value in keywords.items()}
        try:
            given = listed(argument(scope) for argument in arguments)
            return called(function, given, given_by_name, scope)
        except ExpressionError:
            raise  # of an argument, and it points at that
        except SurgeryError as error:
            raise _pointing(error, span) from None

    return run


def _fail(message: str, span: Span, scope: Scope) -> NoReturn:
    raise ExpressionError(message, *span)


def count(pattern: Evaluator, span: Span) -> Evaluator:
    """`count('regex')`."""

    def run(scope: Scope) -> int:
        text = pattern(scope)
        try:
            return _counted(scope, text)
        except SurgeryError as error:
            raise _pointing(error, span) from None

    return run


def _counted(scope: Scope, pattern: Any) -> int:
    if not isinstance(pattern, str):
        raise FunctionError(f"`count` takes a regular expression as text, not {told(pattern)}")
    if scope.count is None:
        raise FunctionError("`count` has no keys to count here")
    return scope.count(pattern)


def substitution() -> Callable[[Any, Any, Any], str]:
    """What `sub(text, 'regex', 'replacement')` does at one place of a recipe, whose matches share a limit."""
    budget = MatchBudget()

    def substituted(text: Any, pattern: Any, replacement: Any) -> str:
        for value in (text, pattern, replacement):
            if not isinstance(value, str):
                raise FunctionError(f"`sub` takes three texts, not {told(value)}")
        try:
            replaced: str = bounded(budget.sub(compile_pattern(pattern), replacement, text))
        except (regex.error, IndexError) as error:
            raise FunctionError(f"`sub`: the replacement {replacement!r} does not fit: {error}") from None
        return replaced

    return substituted
