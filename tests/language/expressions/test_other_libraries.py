"""Functions and methods of NumPy, JAX, PyTorch and einops: what messages say to write instead of them."""

import re

import pytest
import regex

from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.calls import call_problem, usage
from ckpt_surgery.language.expressions.naming import INSTEAD, function_names, unknown_function
from ckpt_surgery.language.expressions.parsing import check, parse
from ckpt_surgery.language.expressions.scope import ExpressionError

NAMES = ("x", "a", "b", "i", "n", "axes", "axis", "shape", "dtype", "reps", "indices", "repeats", "method")
NAMES += ("start", "stop", "value", "min", "max", "pattern", "other", "text", "source", "target", "key", "g")


def refusal(text: str) -> str:
    """The message for an expression that is refused while it is parsed."""
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    return raised.value.message


def test_methods_and_modules_name_what_is_written_here() -> None:
    for expression, advice in (
        ("x.astype('float32')", "`cast(x, dtype)`"),
        ("x.reshape(6)", "`reshape(x, shape)`"),
        ("np.zeros((2, 3))", "`zeros(shape, dtype)`"),
        ("jnp.linalg.norm(x)", "`norm(x, axis=…, ord=…, keepdims=…)`"),
        ("einops.rearrange(x, 'a b -> b a')", "`rearrange(x, pattern)`"),
        ("x.unsqueeze(0)", "`expand_dims(x, axis)`"),
        ("x.T()", "`x.T`, without parentheses"),
        ("target['a'].permute(1, 0)", "`transpose(x, axes)`"),
        ("x.transpose(0, 1)", "`transpose(x, axes)`"),  # PyTorch swaps these two axes
        ("x.repeat(2, 1)", "`tile(x, reps)`"),  # as PyTorch's does
        ("jnp.float32", "a type is written as text: 'float32'"),
        ("cast(x, torch.half)", "a type is written as text: 'float16'"),
        ("key.split('/')", "`g[1]`"),
    ):
        assert advice in refusal(expression)


def test_unknown_functions_are_not_mistaken_for_similar_names() -> None:
    for name, instead in (
        ("unsqueeze", "expand_dims(x, axis)"),
        ("matmul", "a @ b"),
        ("view", "reshape(x, shape)"),
        ("split", "x[:n]"),
        ("clamp", "clip(x, min, max)"),
    ):
        problem = unknown_function(name)
        assert f"`{instead}`" in problem
        assert "did you mean" not in problem


@pytest.mark.parametrize("advice", sorted(set(INSTEAD.values())))
def test_everything_advised_is_an_expression_of_the_language(advice: str) -> None:
    """Its arguments are names that no recipe has, so that nobody gets a value by copying it unread."""
    for text in re.findall("`([^`]*)`", advice):
        assert check(parse(text), NAMES, pattern=regex.compile("(.)")) == []


def test_calls_that_are_advised_fit_their_functions() -> None:
    for function in registry().values():
        names = parse(re.sub(r"(?:, )?\w+=…", "", usage(function, "{}=…"))).names
        assert call_problem(function, len(names), ()) is None


def test_no_name_of_the_table_is_a_function() -> None:
    assert function_names().isdisjoint(INSTEAD)


def test_methods_that_nobody_has_get_no_advice() -> None:
    assert refusal("x.frobnicate()") == "expressions have no methods: `.frobnicate(…)` is not accepted"


def test_arguments_of_pytorch_are_known() -> None:
    for name, argument, meant in (("mean", "dim", "axis"), ("sum", "keepdim", "keepdims")):
        problem = call_problem(registry()[name], 1, (argument,)) or ""
        assert problem.endswith(f"`{argument}`; did you mean `{meant}`?")
