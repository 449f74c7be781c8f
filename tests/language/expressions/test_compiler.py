"""The walk over the syntax tree: what it notes, what it refuses, and in which order closures run."""

import ast
from collections.abc import Sequence
from typing import Any

import pytest

from ckpt_surgery.core.errors import Code, SourceError
from ckpt_surgery.language.expressions.compiler import (
    LOOK_UP,
    MAX_DEPTH,
    MAX_LITERAL_BITS,
    Compiler,
    errors_at,
)
from ckpt_surgery.language.expressions.scope import (
    ExpressionError,
    Lookup,
    PatternError,
    Scope,
    Use,
)


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
    assert compiler.name_uses[2] == Use("x", 5, 6)
    assert compiler.groups == [Use(1, 25, 29), Use("n", 33, 39)]


def test_the_order_of_evaluation() -> None:
    for text, seen in (
        ("t[1] + t[2] * t[3]", [1, 2, 3]),
        ("t[1] < t[2] < t[0] < t[9]", [1, 2, 0]),  # none after the first that does not hold
        ("t[0] and t[1]", [0]),
        ("t[0] or t[1] or t[2]", [0, 1]),
        ("t[1] if t[0] else t[2]", [0, 2]),
        ("replace(t['a'], new=t['b'], old=t['c'])", ["b", "c", "a"]),
    ):
        table = Recorder()
        evaluated(text, t=table)
        assert table.seen == seen


def test_limits() -> None:
    assert evaluated(str(2**MAX_LITERAL_BITS - 1)) == 2**MAX_LITERAL_BITS - 1
    with pytest.raises(ExpressionError, match="the number has 65 bits; the limit is 64"):
        compiler_of(str(2**MAX_LITERAL_BITS))
    assert evaluated("-" * (MAX_DEPTH - 1) + "1") == -1
    with pytest.raises(ExpressionError, match="nested deeper than 64 levels"):
        compiler_of("-" * MAX_DEPTH + "1")


def test_refusals() -> None:
    for text, message, start, end in (
        ("1 ^ 2", "this operator is not part of the expression language", 0, 5),
        ("x is None", "`is` is not part of the expression language; use `==`", 0, 9),
        ("x.f()", "expressions have no methods: `.f(…)` is not accepted", 0, 5),
        ("o.index(x)", f"expressions have no methods: `.index(…)` is not accepted; {LOOK_UP}", 0, 10),
        ("{'a': 1}[x]", f"a dictionary is not part of the expression language; {LOOK_UP}", 0, 8),
        ("f(x)(x)", "only functions of the language can be called, by their name", 0, 7),
        ("hooks.f(x=1)", "a hook is called by its name with plain arguments: hooks.name(x)", 0, 12),
        ("has(x)", "`has` takes a look-up: has(source['a/b'])", 0, 6),
        ("get(x['a'])", "`get` takes a look-up: get(source['a/b'], default)", 0, 11),
        ("count()", "`count` takes one regular expression: count('regex')", 0, 7),
        ("f'{x!r}'", "conversions such as `!r` are not part of the expression language", 0, 8),
        ("1e999", "the number is beyond what a float holds", 0, 5),
        ("__name__", "the name `__name__` is not accepted", 0, 8),
    ):
        with pytest.raises(ExpressionError) as caught:
            compiler_of(text)
        assert (caught.value.message, caught.value.start, caught.value.end) == (message, start, end)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SourceError("no", hint="Say yes."), ("no", 3, 8, "Say yes.", Code.SOURCE)),
        (ExpressionError("no such leaf", 4, 5), ("no such leaf", 4, 5, None, Code.EXPRESSION)),  # of a part
        (PatternError("missing )", 0, 1), ("missing )", 3, 8, None, Code.PATTERN)),  # of another text
    ],
)
def test_errors_point_at_a_span(error: Exception, expected: tuple[Any, ...]) -> None:
    def action(scope: Scope) -> Any:
        raise error

    with pytest.raises(ExpressionError) as caught:
        errors_at((3, 8), action)(Scope({}))
    found = caught.value
    assert (found.message, found.start, found.end, found.hint) == expected[:4]
    assert found.problems[0].code is expected[4]


class Failing:
    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        raise SourceError(f"{name} failed")


def no_pattern(pattern: str) -> int:
    raise PatternError("missing )", 0, 1)


LONG = range(600_000)


def test_errors_of_evaluation_point_at_their_node() -> None:
    for text, message, marked in (
        ("1 + hooks.f(x)", "f failed", "hooks.f(x)"),
        ("1 + count(text)", "missing )", "count(text)"),
        ("sub(text, text, 1)", "`sub` takes three texts, not the number 1", "sub(text, text, 1)"),
        ("sub(text, '(', 'a')", "not a regular expression", "sub(text, '(', 'a')"),
        ("sub(text, 'a', '\\\\9')", "`sub`: the replacement", "sub(text, 'a', '\\\\9')"),
        ("f'{x:{hooks}}'", "the hooks cannot be part of a text", "f'{x:{hooks}}'"),
        ("[1, [(long + []), (long + [])]]", "the lists are too long together", "[(long + []), (long + [])]"),
        ("len(long + [], long + [])", "at most one argument, 2 given", "len(long + [], long + [])"),
        ("where(long + [], long + [], 1)", "the lists are too long", "where(long + [], long + [], 1)"),
        ("has(x['a']['b'])", "`has` looks into a source", "x['a']"),
    ):
        compiled = compiler_of(text)[1]
        names = {"hooks": Failing(), "x": 1, "text": "a", "long": LONG}
        with pytest.raises(ExpressionError) as caught:
            compiled(Scope(names, count=no_pattern))
        assert message in caught.value.message
        # From Python 3.12 on, the part of a text in braces has a place of its own.
        assert text[caught.value.start : caught.value.end] in (marked, ":{hooks}")


def test_count_asks_for_the_keys_of_a_pattern() -> None:
    assert compiler_of("count('a.*')")[1](Scope({}, count={"a.*": 5}.__getitem__)) == 5
    with pytest.raises(ExpressionError, match="`count` has no keys to count here"):
        evaluated("count('a')")


def test_wrong_calls_are_noted_before_they_are_evaluated() -> None:
    compiler = compiler_of("lowr(x) or int() or count('(') or sub(x, '[', '') or sub(x, y, '(')")[0]
    assert [(e.start, e.end, e.problems[0].code) for e in compiler.wrong_calls] == [
        (0, 4, Code.UNKNOWN_FUNCTION),
        (11, 16, Code.CALL),
        (20, 30, Code.PATTERN),
        (34, 49, Code.PATTERN),
    ]


def test_spans_are_of_characters() -> None:
    for text, lead in (
        ("1 + name", 0),
        ("  1 + name", 2),
        ("(1 +\r\n  name)", 0),
        ("'\N{GRINNING FACE}é' + name", 0),
        ("('é' +\n 'ß' + name)", 0),
    ):
        compiler = Compiler(text, lead)
        compiler.compiled(ast.parse(text[lead:], mode="eval").body)
        assert [text[use.start : use.end] for use in compiler.name_uses] == ["name"]


def test_wrong_positions_in_an_f_string_give_the_whole_of_it() -> None:
    text = "f'{name}' + name"
    tree = ast.parse(text, mode="eval").body
    (inner,) = [node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)]
    inner.value.col_offset, inner.value.end_col_offset = 0, 4  # as Python before 3.12 can give them
    compiler = Compiler(text, 0)
    compiler.compiled(tree)
    assert compiler.name_uses == [Use("name", 0, 9), Use("name", 12, 16)]
