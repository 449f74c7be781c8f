"""The functions that expressions can call, and the messages for what is not among them."""

import pytest

from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.vocabulary import BUILT_IN, call_problem, function_names, unknown_name


def test_all_functions_are_names() -> None:
    assert function_names() == {*registry(), *BUILT_IN}
    assert BUILT_IN.keys().isdisjoint(registry())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stack", "`stack` is a function; call it: stack(…)"),
        ("has", "`has` is a function; call it: has(…)"),
        ("hooks", "`hooks` needs a line `hooks: FILE.py` in the recipe"),
        ("soruce", "unknown name `soruce`; did you mean `source`?"),
        ("bfloat16", "unknown name `bfloat16`; a type is written as text: 'bfloat16'"),
        ("zzz", "unknown name `zzz`"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    assert unknown_name(name, ["x", "source"]) == message


@pytest.mark.parametrize(
    ("name", "positional", "keywords", "message"),
    [
        ("stack", 1, ("axis",), None),
        ("count", 9, ("any",), None),
        ("stak", 1, (), "unknown function `stak`; did you mean `stack`?"),
        ("transpose", 0, (), "`transpose` needs `x`: transpose(x, [axes])"),
        ("lower", 1, ("case",), "`lower` has no argument `case`"),
    ],
)
def test_calls(name: str, positional: int, keywords: tuple[str, ...], message: str | None) -> None:
    assert call_problem(name, positional, keywords) == message
