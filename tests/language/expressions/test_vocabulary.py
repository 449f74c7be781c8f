"""The functions that expressions can call, and the messages for what is not among them."""

import pytest

from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.vocabulary import BUILT_IN, call_problem, function_names


def test_all_functions_are_names() -> None:
    assert function_names() == {*registry(), *BUILT_IN}
    assert BUILT_IN.keys().isdisjoint(registry())


@pytest.mark.parametrize(
    ("name", "positional", "keywords", "message"),
    [
        ("stack", 1, ("axis",), None),
        ("stak", 1, (), "unknown function `stak`; did you mean `stack`?"),
        ("transpose", 0, (), "`transpose` needs `x`: transpose(x, [axes])"),
        ("lower", 1, ("case",), "`lower` has no argument `case`"),
    ],
)
def test_calls(name: str, positional: int, keywords: tuple[str, ...], message: str | None) -> None:
    assert call_problem(name, positional, keywords) == message
