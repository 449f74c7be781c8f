"""Parsing of key templates, and the checks that need no match."""

import pytest
import regex

from ckpt_surgery.language.expressions.parsing import Expression, parse
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.patterns import template_parsing
from ckpt_surgery.language.patterns.template_parsing import (
    MAX_TEXT,
    MOST_BRACES,
    check_groups,
    check_template,
    parse_template,
)
from ckpt_surgery.language.patterns.templates import Piece


def test_pieces_have_their_places() -> None:
    template = parse_template(r"a\/b/\1\g<n>\g<12>/${m + '}'}$$")
    assert template.segments == (
        (Piece(0, 1, "a"), Piece(1, 3, "/"), Piece(3, 4, "b")),
        (Piece(5, 7, group=1), Piece(7, 12, group="n"), Piece(12, 18, group=12)),
        (Piece(21, 28, expression=parse("m + '}'")), Piece(29, 31, "$")),
    )
    assert template.names == {"m"}


@pytest.mark.parametrize(
    ("text", "message", "start", "end"),
    [
        ("", "the key has an empty component here", 0, 1),
        ("/a", "the key has an empty component here", 0, 1),
        ("a//b", "the key has an empty component here", 2, 3),
        ("a/", "the key has an empty component here", 1, 2),
        ("a/$12", "`$12` is not a group; write `\\12`", 2, 5),
        ("a$b", "a dollar sign is written `$$`; `${…}` inserts an expression", 1, 2),
        (r"a\d", r"`\d` means nothing in a template; a backslash is written `\\`", 1, 3),
        (r"a\g<1x>", r"`\g<1x>` does not name a group", 1, 7),
        ("a/${x", "`${` is not closed by `}`", 2, 4),
        ("a/${'x}", "not an expression: unterminated string literal (detected at line 1)", 4, 5),
        ("a/${(x}/${y}", "not an expression: '(' was never closed", 4, 5),
        ("a/${1 +}", "not an expression: invalid syntax", 6, 7),
        ("a/${1 + '}' +}/${x}", "not an expression: invalid syntax", 12, 13),
        ("a" * (MAX_TEXT + 1), "a template of 4097 characters; the limit is 4096", 0, 1),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_refusals(text: str, message: str, start: int, end: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(text)
    assert (caught.value.message, caught.value.start, caught.value.end) == (message, start, end)


def test_brackets_and_quotes_inside_an_expression_do_not_end_it() -> None:
    (piece,) = parse_template("${t['}'] + f'{n}' + \"{\"}").pieces
    assert piece.expression is not None
    assert piece.expression.text == "t['}'] + f'{n}' + \"{\""


def test_only_the_first_braces_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def counted(text: str) -> Expression:
        tried.append(text)
        return parse(text)

    monkeypatch.setattr(template_parsing, "parse", counted)
    with pytest.raises(ExpressionError, match="'\\(' was never closed"):
        parse_template("${" + "f(" * 90 + "}" * 3000)
    assert len(tried) == MOST_BRACES


def test_groups_are_checked_against_the_pattern() -> None:
    pattern = regex.compile("(?P<name>.)(.)")
    assert check_template(parse_template(r"\1\g<name>${g[2]}"), {"g"}, pattern) == []
    flaws = check_template(parse_template(r"\3/\g<nme>/${g[4] + y}"), {"g"}, pattern)
    assert [(e.message, e.start, e.end) for e in flaws] == [
        ("the regular expression has no group 3", 0, 2),
        ("the regular expression has no group 'nme'; did you mean `name`?", 3, 10),
        ("unknown name `y`", 20, 21),
        ("the regular expression has no group 4", 13, 17),
    ]


def test_without_a_pattern_there_are_no_groups() -> None:
    (error,) = check_groups(parse("g[1]"), None)
    assert (error.message, error.start, error.end) == (
        "no regular expression here could have a group 1",
        0,
        4,
    )
