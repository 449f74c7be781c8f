"""Key templates: what they spell, where each component came from, and what is refused."""

import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.language.expressions.parsing import Expression, parse
from ckpt_surgery.language.expressions.scope import ExpressionError, Groups, Scope, Table
from ckpt_surgery.language.patterns import templates
from ckpt_surgery.language.patterns.templates import (
    MOST_BRACES,
    Component,
    check_template,
    parse_template,
)
from tests.support.effort import examples

PATTERN = regex.compile(r"(?P<p>.*)/layer_(?P<n>\d+)/(?P<m>[qkv])(?P<none>/z)?")
KEY = "a/b/layer_12/q"
MATCH = PATTERN.fullmatch(KEY)
assert MATCH is not None
SCOPE = Scope(
    {
        **{name: text or "" for name, text in MATCH.groupdict().items()},
        "g": Groups(MATCH),
        "i": 7,
        "matrix": Table("matrix", {"q": "attention/query"}),
        "rate": 0.5,
        "flag": True,
    }
)


def components(text: str) -> list[tuple[str, int | None]]:
    """The names of the components, those of list indices in brackets, and where each was taken from."""
    found = parse_template(text).expand(MATCH, SCOPE)
    return [(f"[{c.name}]" if c.index else c.name, c.origin) for c in found]


def test_a_list_index_of_more_digits_than_python_converts() -> None:
    digits = "1" * 5000
    (layers, index) = parse_template("layers/[${i}]").expand(MATCH, Scope({"i": digits}))
    assert (layers.index, index) == (False, Component(digits, True, None))


def test_expand() -> None:
    for text, names in (
        ("x/y z/w.v", ["x", "y z", "w.v"]),
        (r"\g<p>/\g<2>/end", ["a", "b", "12", "end"]),
        (r"x\4", ["x"]),  # a group that did not take part
        (r"\2\3", ["12q"]),
        ("${matrix[m]}/kernel", ["attention", "query", "kernel"]),
        ("layers_${i}", ["layers_7"]),
        ("${i + int(n)}", ["19"]),
        ("${f'{int(n):03d}'}", ["012"]),
        ("${'}'}/${\"{\"}", ["}", "{"]),
        ("${['/', 'x'][1]}", ["x"]),
        ("${'it\\'s'}", ["it's"]),
        ("$$x$$", ["$x$"]),
        ("$${n}", ["${n}"]),
        (r"a\/b/c", ["a/b", "c"]),
        (r"\\1", ["\\1"]),
        ("é/😀", ["é", "😀"]),
        # list indices
        ("a/[0]/b", ["a", "[0]", "b"]),
        ("[${i}]", ["[7]"]),
        (r"[\2]", ["[12]"]),
    ):
        assert [name for name, _ in components(text)] == names


@pytest.mark.parametrize("text", ["[x]", "[]", "[-1]", "${'[0]'}", "[${'0]'}", "[0]x", "[٣]"])
def test_brackets_that_are_part_of_a_name(text: str) -> None:
    (component,) = parse_template(text).expand(MATCH, SCOPE)
    assert not component.index
    assert component.name == re.sub(r"\$\{'(.*)'\}", r"\1", text)


def test_components_know_where_they_were_taken_from() -> None:
    for text, origins in (
        (r"\1/x", [("a", 0), ("b", 2), ("x", None)]),
        ("x/${n}", [("x", None), ("12", 10)]),
        (r"pre\1/x", [("prea", None), ("b", 2), ("x", None)]),
        ("${p}y", [("a", 0), ("by", None)]),
        ("${p + ''}", [("a", None), ("b", None)]),
        ("${g[1]}", [("a", None), ("b", None)]),
        (r"\g<0>", [("a", 0), ("b", 2), ("layer_12", 4), ("q", 13)]),
        ("${n}${none}", [("12", 10)]),  # nothing is added to it
        ("[${n}]", [("[12]", None)]),
    ):
        assert components(text) == origins


@examples(150)
@given(st.lists(st.text("ab/$\\[]{}é.", min_size=1, max_size=5), min_size=1, max_size=4))
def test_every_key_can_be_written(names: list[str]) -> None:
    text = "/".join(
        re.sub(r"[\\/]", r"\\\g<0>", name).replace("$", "$$").replace("[", "${'['}") for name in names
    )
    assert parse_template(text).expand(None, Scope({})) == tuple(Component(n, False, None) for n in names)


def test_refused_while_parsing() -> None:
    for text, start, end, message in (
        ("", 0, 1, "empty component"),
        ("a/", 1, 2, "empty component"),
        ("a/$12", 2, 5, "`$12` is not a group; write `\\12`"),
        (r"a\g<1x>", 1, 7, r"`\g<1x>` does not name a group"),
        ("a/${(x}/${y}", 4, 5, "not an expression: '(' was never closed"),
        ("a/${1 + '}' +}/${x}", 12, 13, "not an expression: invalid syntax"),
        ("a/$b", 2, 3, "a dollar sign is written `$$`"),
        ("a$", 1, 2, "a dollar sign is written `$$`"),
        (r"a\d", 1, 3, r"`\d` means nothing in a template"),
        ("a\\", 1, 2, "means nothing"),
        (r"a/\g<a-b>", 2, 9, "does not name a group"),
        ("a/${}", 4, 5, "the expression is empty"),
        ("a/[007]", 2, 3, "the list index [007] has leading zeros"),
        ("a" * 5000, 0, 1, "5000 characters"),
    ):
        with pytest.raises(ExpressionError) as caught:
            parse_template(text)
        assert message in caught.value.message
        assert (caught.value.start, caught.value.end) == (start, end)


def test_refused_while_expanding() -> None:
    for text, start, end, message in (
        ("${'a//b'}", 2, 8, "empty component"),
        ("a/${['b']}", 4, 9, "not a list of 1 value"),
        ("a/b${1 + m}", 5, 10, "`+` does not take"),
        ("a/${zz}", 4, 6, "unknown name `zz`"),
    ):
        with pytest.raises(ExpressionError) as caught:
            parse_template(text).expand(MATCH, SCOPE)
        assert message in caught.value.message
        assert (caught.value.start, caught.value.end) == (start, end)


def test_a_key_has_a_longest_length() -> None:
    long = Scope({"a": "b" * 40_000})
    assert len(parse_template("${a}").expand(None, long)[0].name) == 40_000
    with pytest.raises(ExpressionError, match="longer than 65536"):
        parse_template("${a}${a}").expand(None, long)


def test_check_template() -> None:
    for text, flaws in (
        (r"\1/\g<p>/${n}", []),
        (r"\9", [("the regular expression has no group 9", 0, 2)]),
        (r"a/\g<nn>", [("the regular expression has no group 'nn'; did you mean `none`?", 2, 8)]),
        (
            "a/${nn}/${g[9]}",
            [
                ("unknown name `nn`; did you mean `n`?", 4, 6),
                ("the regular expression has no group 9", 10, 14),
            ],
        ),
        ("${uper(n)}", [("unknown function `uper`; did you mean `upper`?", 2, 6)]),
    ):
        known = {"p", "n", "m", "g"}
        errors = check_template(parse_template(text), known, (), PATTERN)
        assert [(e.message, e.start, e.end) for e in errors] == flaws


PARTS = ("a", "b%s", "/", r"\1", r"\g<n>", r"\g<none>", r"\/", "[0]", "$$", "${i}", "${p}", "é")


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join))
def test_names_that_are_simply_told_are_those_of_the_components(text: str) -> None:
    try:
        template = parse_template(text)
    except ExpressionError:
        return
    assert MATCH is not None
    names = template.names_of(MATCH)
    if names is not None:
        assert list(names) == [name for name, _ in components(text)]


def test_which_names_are_simply_told() -> None:
    for text, names in (
        (r"model/50%_\2/\1", ("model", "50%_12", "a", "b")),
        (r"\g<none>/x", None),  # the group did not take part
        (r"x/\1[0]", None),
        (r"a\/b", None),
        ("${i}", None),
    ):
        assert MATCH is not None
        assert parse_template(text).names_of(MATCH) == names


def test_only_the_first_braces_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def counted(text: str) -> Expression:
        tried.append(text)
        return parse(text)

    monkeypatch.setattr(templates, "parse", counted)
    with pytest.raises(ExpressionError, match="'\\(' was never closed"):
        parse_template("${" + "f(" * 90 + "}" * 3000)
    assert len(tried) == MOST_BRACES
