"""Where nodes stand in the text of their expression."""

import ast

from ckpt_surgery.language.expressions.spans import Spans


def test_spans_are_of_characters() -> None:
    for text, lead in (
        ("1 + name", 0),
        ("  1 + name", 2),
        ("(1 +\r\n  name)", 0),
        ("'\N{GRINNING FACE}é' + name", 0),
        ("('é' +\n 'ß' + name)", 0),
    ):
        names = [node for node in ast.walk(ast.parse(text[lead:], mode="eval")) if isinstance(node, ast.Name)]
        assert [text[slice(*Spans(text, lead).of(node))] for node in names] == ["name"]


def test_wrong_positions_in_an_f_string_give_the_whole_of_it() -> None:
    text = "f'{name}'"
    whole = ast.parse(text, mode="eval").body
    assert isinstance(whole, ast.JoinedStr)
    (part,) = whole.values
    assert isinstance(part, ast.FormattedValue)
    moved = ast.copy_location(ast.Name("name", ast.Load()), part.value)
    moved.col_offset, moved.end_col_offset = 0, 4  # as Python before 3.12 can give them
    spans = Spans(text, 0)
    with spans.inside(whole, moved):
        assert spans.of(moved) == (0, len(text))
    assert spans.of(moved) == (0, 4)
