"""Parsing of key templates, and the checks that need no match."""

import pytest

from ckpt_surgery.language.expressions.parsing import Expression, parse
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.patterns import template_parsing
from ckpt_surgery.language.patterns.template_parsing import (
    MOST_BRACES,
    check_groups,
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


def test_only_the_first_braces_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def counted(text: str) -> Expression:
        tried.append(text)
        return parse(text)

    monkeypatch.setattr(template_parsing, "parse", counted)
    with pytest.raises(ExpressionError, match="'\\(' was never closed"):
        parse_template("${" + "f(" * 90 + "}" * 3000)
    assert len(tried) == MOST_BRACES


def test_without_a_pattern_there_are_no_groups() -> None:
    (error,) = check_groups(parse("g[1]"), None)
    assert (error.message, error.start, error.end) == (
        "no regular expression here could have a group 1",
        0,
        4,
    )
