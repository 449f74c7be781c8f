"""The values of formations as the text of a rule."""

import pytest

from ckpt_surgery.inference.drafts.parts import (
    Tables,
    gathers,
    read_alone,
    takes_apart,
    with_holes,
    with_sources,
)


@pytest.mark.parametrize(
    ("text", "several", "apart"),
    [
        ("x.T", False, False),
        ("stack(xs)", True, False),
        ("xs[0] + xs[1]", True, True),
        ("xs[0] + sum(xs)", True, False),
    ],
)
def test_values_of_several_leaves(text: str, several: bool, apart: bool) -> None:
    assert (gathers(text), takes_apart(text)) == (several, apart)


@pytest.mark.parametrize(
    ("text", "expressions", "written"),
    [
        ("x[{0}]", ["i"], "x[i]"),
        ("x[{0}:{1}]", ["i * 2", "i * 2 + 2"], "x[i * 2:i * 2 + 2]"),
        ("f(x, h={0}, d={1})", ["i + 1", "3"], "f(x, h=i + 1, d=3)"),
        ("x * {0}", ["i + 1"], "x * (i + 1)"),  # it would be torn apart
        ("x * {0}", ["int(n)"], "x * int(n)"),
        ("x * {0}", ["2"], "x * 2"),
        ("{0} * x", ["i - 1"], "(i - 1) * x"),
        ("f('{{a}}')", [], "f('{a}')"),
    ],
)
def test_holes(text: str, expressions: list[str], written: str) -> None:
    assert with_holes(text, expressions) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("xs[1] - xs[0]", "source['b'] - source['a']"),
        ("concat(xs)", "concat([source['a'], source['b']])"),
        ("sum(xs) + xs[0]", "sum([source['a'], source['b']]) + source['a']"),
    ],
)
def test_looked_up_lists(text: str, written: str) -> None:
    assert with_sources(text, ["source['a']", "source['b']"]) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x.T + x", "s.T + s"),
        ("rearrange(x, 'x a -> a x', x=2)", "rearrange(s, 'x a -> a x', x=2)"),  # these are names of axes
        ("exp(x)", "exp(s)"),
    ],
)
def test_looked_up_leaves(text: str, written: str) -> None:
    assert read_alone(text, "s") == written


def test_tables_that_agree_are_one() -> None:
    tables = Tables(["order"])
    assert tables.named("names", {"a": "x"}) == "names"
    assert tables.named("names", {"a": "x", "b": "y"}) == "names"
    assert tables.named("names", {"a": "z"}) == "names2"
    assert tables.named("names", {"c": "z", "b": "y"}) == "names"
    assert tables.named("order", {"a": 0}) == "order2"
    assert tables.named("members", {"b": 0}, alone=True) == "members"
    assert tables.named("members", {"c": 0}, alone=True) == "members2"
    assert tables.items() == {
        "names": {"a": "x", "b": "y", "c": "z"},
        "names2": {"a": "z"},
        "order2": {"a": 0},
        "members": {"b": 0},
        "members2": {"c": 0},
    }
