"""The strict loader: what it constructs, what it reports and goes on, and where it stops."""

from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import RecipeError, UsageError
from ckpt_surgery.language.files import load_document, read_text
from ckpt_surgery.language.yaml.document import Mark
from ckpt_surgery.language.yaml.parsing import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NUMBER,
    MAX_PROBLEMS,
    Disputed,
    parse_document,
    plain_value,
)


def problems(text: str) -> list[tuple[int | None, int, str]]:
    found = []
    for problem in parse_document(text, "r.yaml").problems:
        assert problem.place is not None
        found.append((problem.place.line, problem.place.column, problem.message))
    return found


def test_values_and_their_marks() -> None:
    text = "a: [1, 'b']\n3: {c: null}\n"
    document = parse_document(text, "r.yaml")
    assert document.value == {"a": [1, "b"], 3: {"c": None}}
    assert document.marks["a", 1] == Mark(7, 10, "'", "b")
    assert text[slice(document.key_marks[3, "c"].start, document.key_marks[3, "c"].stop)] == "c"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: 1\na: 2", 2, 1, "`a` appears twice; the first is on line 1"),
        ("a: &x 1", 1, 4, "an anchor (`&name`) is not accepted"),
        ("a: *x", 1, 4, "an alias (`*name`) is not accepted; write the value again"),
        ("a: !!str 1", 1, 4, "a tag (`!!str`) is not accepted"),
        ("<<: {}", 1, 1, "a merge key (`<<`) is not accepted; write the fields out"),
        ("true: 1", 1, 1, "the key `true` must be text; write it in quotes"),
        (r'a: "\ud83d"', 1, 4, "an escape gives half of a surrogate pair, which is not text"),
    ],
)
def test_problems_after_which_parsing_goes_on(text: str, line: int, column: int, message: str) -> None:
    assert problems(text + "\nlast: no") == [
        (line, column, message),
        (
            text.count("\n") + 2,
            7,
            "`no` means different things to different YAML readers; write it in quotes, or true/false",
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * (MAX_DEPTH + 1), "nested deeper than 20 levels"),
        ("a: 1\n---\nb: 2", "there is a second document; write one document per file"),
        ("[a]: 1", "a key must be text, not a list or a mapping"),
        ("*a : 1", "an alias (`*name`) is not accepted"),
        ("%TAG ! tag:x,2000:\n---\na: 1", "a %TAG directive is not accepted"),
        ("a: [1", "not valid YAML: while parsing a flow sequence"),
        ("a: \x07", "the character U+0007 is not allowed in YAML"),
    ],
)
def test_problems_that_end_it(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_document(text, "r.yaml")
    assert caught.value.problems[-1].message.startswith(message)


def test_it_stops_after_many_problems() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_document("- no\n" * (MAX_PROBLEMS + 5), "r.yaml")
    assert len(caught.value.problems) == MAX_PROBLEMS


def test_json_with_tabs_and_a_byte_order_mark() -> None:
    assert parse_document('\ufeff{\t"a\t": 1}', "r.json").value == {"a\t": 1}


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (None, UsageError, "recipe not found:"),
        (b"a: \xff", RecipeError, "is not UTF-8 text: byte 3 is 0xff"),
        (b"#" * (MAX_BYTES + 1), RecipeError, "is larger than 1 MiB"),
    ],
    ids=["missing", "bytes", "size"],
)
def test_files_that_are_no_text(data: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(error, match=message):
        read_text(path)
    with pytest.raises(UsageError, match="is a directory; a recipe is a YAML file"):
        read_text(tmp_path)


def test_a_directory_in_the_place_of_a_recipe_may_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_text(tmp_path)
    assert "`convert`" in (caught.value.problems[0].hint or "")
    (tmp_path / "r.yaml").touch()
    with pytest.raises(UsageError) as caught:
        read_text(tmp_path)
    assert f"{tmp_path}/*.yaml" in (caught.value.problems[0].hint or "")


def test_a_file_with_any_problem_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("a: 1\n")
    assert load_document(path).value == {"a": 1}
    path.write_text("a: no\n")
    with pytest.raises(RecipeError, match="means different things"):
        load_document(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("null", None),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        ("text", "text"),
        ("1.2.3", "1.2.3"),
        ("layer_1", "layer_1"),
    ],
)
def test_values(text: str, value: Any) -> None:
    found = plain_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("no", "write it in quotes, or true/false"),
        ("Yes", "write it in quotes, or true/false"),
        ("True", "write it in quotes, or in lower case"),
        ("~", "write it in quotes, or null"),
        ("010", "write it in quotes, or without leading zeros"),
        ("0x10", "write it in quotes, or in decimal"),
        ("1_000", "write it in quotes, or as a plain decimal number such as 0.5"),
        (".5", "write it in quotes, or as a plain decimal number such as 0.5"),
        (".inf", "write it in quotes"),
        ("1:30", "write it in quotes"),
        ("2024-01-31", "write it in quotes"),
    ],
)
def test_what_readers_disagree_about(text: str, advice: str) -> None:
    assert plain_value(text) == Disputed(
        f"`{text}` means different things to different YAML readers; {advice}"
    )


def test_numbers_have_limits() -> None:
    assert plain_value("1" * MAX_NUMBER) == int("1" * MAX_NUMBER)
    assert plain_value("1" * (MAX_NUMBER + 1)) == Disputed(
        "a number of 41 characters is too long; the limit is 40"
    )
    assert plain_value("1e999") == Disputed("1e999 is beyond what a float holds")
