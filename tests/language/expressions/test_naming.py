"""Names with a meaning of their own, and those that are taken."""

from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.naming import (
    BUILT_IN,
    EVERYWHERE,
    MEANINGS,
    function_names,
    name_problem,
    unknown_function,
    unknown_name,
)
from ckpt_surgery.language.expressions.scope import HOOKS


def test_names_that_are_free_wrong_or_taken() -> None:
    for names, problem in (
        (("", "1a", "a-b", "if", "None", "__a"), "is not a valid name; use letters, digits and `_`"),
        ((*MEANINGS, *EVERYWHERE, HOOKS), "has a meaning of its own in recipes; choose another name"),
        (("stack",), "is a function; choose another name"),
        (("n",), "is already a param; choose another name"),
    ):
        for name in names:
            assert (name_problem(name, {"n": "a param"}) or "").startswith(f"`{name}` {problem}")
    assert not any(name_problem(name, {"n": "a param"}) for name in ("m", "layer_1", "é", "source_2"))
    assert name_problem("stack", {}, subscripted=True) is None


def test_unknown_names() -> None:
    for name, message in (
        ("stack", "`stack` is a function; call it: stack(…)"),
        ("has", "`has` is a function; call it: has(…)"),
        ("bfloat16", "unknown name `bfloat16`; a type is written as text: 'bfloat16'"),
    ):
        assert unknown_name(name, ["x", "source"]) == message


def test_all_functions_are_names() -> None:
    assert function_names() == {*registry(), *BUILT_IN}
    assert BUILT_IN.keys().isdisjoint(registry())
    assert unknown_function("stak") == "unknown function `stak`; did you mean `stack`?"
