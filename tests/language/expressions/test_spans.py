"""Where nodes stand in the text of their expression."""

import ast

import pytest

from ckpt_surgery.language.expressions.spans import Spans


def tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def found(text: str, wanted: str, lead: int = 0) -> str:
    """The characters of the first name `wanted`, cut out of the text by its span."""
    whole = tree(text[lead:])
    (node, *_) = [n for n in ast.walk(whole) if isinstance(n, ast.Name) and n.id == wanted]
    start, end = Spans(text, lead).of(node)
    return text[start:end]


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("1 + name", 0),
        ("  1 + name", 2),
        ("(1 +\n  name)", 0),
        ("(1 +\r\n  name)", 0),
        ("'é' + name", 0),
        ("'\N{GRINNING FACE}é' + name", 0),
        ("('é' +\n 'ß' + name)", 0),
    ],
)
def test_spans_are_of_characters(text: str, lead: int) -> None:
    assert found(text, "name", lead) == "name"


def test_wrong_positions_in_an_f_string_give_the_whole_of_it() -> None:
    text = "f'{name}'"
    whole = tree(text)
    assert isinstance(whole, ast.JoinedStr)
    (part,) = whole.values
    assert isinstance(part, ast.FormattedValue)
    moved = ast.copy_location(ast.Name("name", ast.Load()), part.value)
    moved.col_offset, moved.end_col_offset = 0, 4  # as Python before 3.12 can give them
    spans = Spans(text, 0)
    with spans.inside(whole, moved):
        assert spans.of(moved) == (0, len(text))
    assert spans.of(moved) == (0, 4)
