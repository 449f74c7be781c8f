"""The walk over the syntax tree: what it notes, what it refuses, and in which order closures run."""

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from ckpt_surgery.language.compiler import MAX_DEPTH, MAX_LITERAL_BITS, Compiler
from ckpt_surgery.language.scope import CallUse, ExpressionError, GroupUse, Lookup, NameUse, Scope


def compiler_of(text: str) -> tuple[Compiler, Any]:
    compiler = Compiler(text, 0)
    return compiler, compiler.compiled(ast.parse(text, mode="eval").body)


def evaluated(text: str, **names: Any) -> Any:
    return compiler_of(text)[1](Scope(names))


class Recorder(Lookup):
    """A table in which every key is its own entry; it notes what is looked up."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    @property
    def description(self) -> str:
        return "the recorder"

    def entry(self, key: object) -> Any:
        self.seen.append(key)
        return key

    def has(self, key: str | int) -> bool:
        return True


def test_uses_are_noted_with_their_places() -> None:
    compiler, _ = compiler_of("cast(x, dtype='int8') if g[1] == g['n'] else has(source[key])")
    assert [use.name for use in compiler.name_uses] == ["g", "g", "x", "source", "key"]
    assert compiler.name_uses[2] == NameUse("x", 5, 6)
    assert compiler.calls == [CallUse("cast", 1, ("dtype",), None, 0, 21, name_end=4)]
    assert compiler.groups == [GroupUse(1, 25, 29), GroupUse("n", 33, 39)]
    assert compiler_of("count('a.*')")[0].calls[0].literal == "a.*"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("t[1] + t[2] * t[3]", [1, 2, 3]),
        ("t[1] < t[2] < t[0] < t[9]", [1, 2, 0]),  # none after the first that does not hold
        ("t[0] and t[1]", [0]),
        ("t[0] or t[1] or t[2]", [0, 1]),
        ("t[1] if t[0] else t[2]", [0, 2]),
        ("replace(t['a'], new=t['b'], old=t['c'])", ["b", "c", "a"]),
    ],
)
def test_the_order_of_evaluation(text: str, seen: list[object]) -> None:
    table = Recorder()
    evaluated(text, t=table)
    assert table.seen == seen


def test_what_is_chained_has_pythons_value() -> None:
    names: Mapping[str, Any] = {"a": 1, "b": 2, "c": ""}
    for text in ("a < b < 3", "b > a > 1", "c or a and b", "c and a or b", "not c", "a if c else [a, b][1]"):
        assert evaluated(text, **names) == eval(text, dict(names))


def test_limits() -> None:
    assert evaluated(str(2**MAX_LITERAL_BITS - 1)) == 2**MAX_LITERAL_BITS - 1
    with pytest.raises(ExpressionError, match="the number has 65 bits; the limit is 64"):
        compiler_of(str(2**MAX_LITERAL_BITS))
    assert evaluated("-" * (MAX_DEPTH - 1) + "1") == -1
    with pytest.raises(ExpressionError, match="nested deeper than 64 levels"):
        compiler_of("-" * MAX_DEPTH + "1")


@pytest.mark.parametrize(
    ("text", "message", "start", "end"),
    [
        ("1 + (lambda: 1)", "a lambda is not part of the expression language", 5, 14),
        ("1 ^ 2", "this operator is not part of the expression language", 0, 5),
        ("x is None", "`is` is not part of the expression language; use `==`", 0, 9),
        ("x.real", "the attribute `.real` is not accepted; there are .T, .shape, .dtype, .ndim, .size", 0, 6),
        (
            "x.sum()",
            "expressions have no methods: `.sum(…)` is not accepted; write `sum(x, axis=…, keepdims=…)`",
            0,
            7,
        ),
        (
            "o.index(x)",
            "expressions have no methods: `.index(…)` is not accepted; write it as a table under "
            "`tables:`, and look it up by its name: `order[name]`",
            0,
            10,
        ),
        (
            "{'a': 1}[x]",
            "a dictionary is not part of the expression language; write it as a table under `tables:`, and "
            "look it up by its name: `order[name]`",
            0,
            8,
        ),
        ("f(x)(x)", "only functions of the language can be called, by their name", 0, 7),
        ("stack(xs, axis=0, axis=1)", "the argument `axis` is given twice", 18, 24),
        ("stack(*xs)", "unpacking with `*` is not part of the expression language", 6, 9),
        ("hooks.f(x=1)", "a hook is called by its name with plain arguments: hooks.name(x)", 0, 12),
        ("has(x)", "`has` takes one look-up: has(source['a/b'])", 0, 6),
        ("get(x['a'])", "`get` takes one look-up and a default: get(source['a/b'], default)", 0, 11),
        ("count()", "`count` takes one regular expression: count('regex')", 0, 7),
        ("f'{x!r}'", "conversions such as `!r` are not part of the expression language", 0, 8),
        ("1e999", "the number is beyond what a float holds", 0, 5),
        ("__name__", "the name `__name__` is not accepted", 0, 8),
    ],
)
def test_refusals(text: str, message: str, start: int, end: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compiler_of(text)
    assert (caught.value.message, caught.value.start, caught.value.end) == (message, start, end)
