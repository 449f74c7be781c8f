"""The strict YAML loader: what it takes, what it refuses, and where it says that things are."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import Code, RecipeError, SurgeryError
from ckpt_surgery.language.yaml.document import YamlDocument, paired, path_text, value_offsets
from ckpt_surgery.language.yaml.parsing import MAX_BYTES, MAX_PROBLEMS, parse_document
from tests.support.effort import examples
from tests.support.strategies import documents, unicode


def problems(text: str) -> list[tuple[int, int, str]]:
    """Line, column and message of every problem of a document, whether it can be looked at or not."""
    try:
        found = parse_document(text, "r.yaml").problems
    except RecipeError as error:
        found = error.problems
    return [(p.place.line, p.place.column, p.message) if p.place else (0, 0, p.message) for p in found]


# --- values -------------------------------------------------------------------------------------------


def test_values() -> None:
    for text, value in (
        ("true", True),
        ("null", None),
        ("-0", 0),
        ("-1.25e-3", -0.00125),
        ("1e5", 100000.0),  # JSON's and YAML 1.2's; a text only in YAML 1.1
        ("y", "y"),  # a text in PyYAML and libyaml, whatever YAML 1.1 says
        ("0xZZ", "0xZZ"),
        ("{0: a, 1: b}", {0: "a", 1: "b"}),
        ('"010"', "010"),
        ("|\n  a\n  b\n", "a\nb\n"),
        (">-\n  a\n  b\n", "a b"),
        ("", None),
        ("\ufeffa: 1", {"a": 1}),
        ("%YAML 1.2\n---\na", "a"),
        ("'<<': 1", {"<<": 1}),
    ):
        document = parse_document(text, "r.yaml")
        assert document.problems == ()
        assert document.value == value
        assert type(document.value) is type(value)


JSON = documents(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | unicode(12),
    st.text(max_size=5),
    max_leaves=12,
)


@examples(150)
@given(JSON, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_is_a_subset(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=True)
    assert parse_document(text, "r.json").value == value
    if not ascii_only and json.dumps(value, ensure_ascii=False).isprintable():
        assert parse_document(json.dumps(value, ensure_ascii=False), "r.json").value == value


# --- what is refused ------------------------------------------------------------------------------------

HOSTILE = [
    ("a: OFF", (1, 4), "true/false"),
    ("a: True", (1, 4), "in lower case"),
    ("a: NULL", (1, 4), "in lower case"),
    ("a: ~", (1, 4), "or null"),
    ("a: 0o7", (1, 4), "in decimal"),
    ("a: 0x1F", (1, 4), "in decimal"),
    ("a: 1_000", (1, 4), "plain decimal"),
    ("a: +1", (1, 4), "plain decimal"),
    ("a: .inf", (1, 4), "in quotes"),
    ("a: .NaN", (1, 4), "in quotes"),
    ("a: 2026-11-20", (1, 4), "in quotes"),
    ("a: 2001-12-14t21:59:43.10-05:00", (1, 4), "in quotes"),
    ("a: 1e999", (1, 4), "beyond what a float holds"),
    ("a: " + "9" * 5000, (1, 4), "5000 characters"),
    ("{1: a, '1': b, 1: c}", (1, 16), "`1` appears twice"),
    ("*x : 1", (1, 1), "an alias"),
    ("a:\n  <<: {b: 1}", (2, 3), "a merge key"),
    ("a: !!python/object/apply:os.system ['id']", (1, 4), "`!!python/object/apply:os.system`"),
    ("a: !!str 1", (1, 4), "`!!str`"),
    ("%TAG ! tag:x,2000:\n---\na", (1, 1), "%TAG"),
    ("a\n---\nb", (2, 1), "a second document"),
    ("{[1]: 2}", (1, 2), "a key must be text, not a list"),
    ("true: 1", (1, 1), "the key `true` must be text"),
    ("null: 1", (1, 1), "the key `null` must be text"),
    ("? : 1", (1, 3), "a key must be text, not a list"),
    ("[" * 30, (1, 21), "nested deeper than 20 levels"),
    ("a: [1, 2", (1, 9), "not valid YAML"),
    ("a: b: c", (1, 5), "`: ` is not allowed inside a text without quotes"),
    ("a: 'b", (1, 4), "the quote that opens here is never closed"),
    ("- a: 'b\n- c: 'd'\n", (1, 6), "the quote that opens here is closed on line 2 only"),
    ("\ta: 1", (1, 1), "a tab cannot indent a line"),
    ("a: [b\nc: d", (2, 2), "not valid YAML: while parsing a flow sequence"),
    ("a: @b", (1, 4), "this text needs quotes"),
    ("[{a: f(g(x), (0, 2, 1)), b: 1}]", (1, 6), "a comma without quotes ends it"),
    ("{a: concat(xs, axis=0)}", (1, 5), "a comma without quotes ends it"),
    ("{a: f(x, [1, {b: no}], 2), c: d}", (1, 5), "a comma without quotes ends it"),
    ("a: \x00", (1, 4), "U+0000 is not allowed"),
    ("a: \x1b[31m", (1, 4), "U+001B is not allowed"),
    ("\x7fELF\x02\x01", (1, 1), "U+007F is not allowed"),
    (r'{"a": "\ud83d!"}', (1, 7), "half of a surrogate pair"),
]


@pytest.mark.parametrize(("text", "place", "message"), HOSTILE, ids=[repr(row[0][:30]) for row in HOSTILE])
def test_hostile(text: str, place: tuple[int, int], message: str) -> None:
    ((line, column, told),) = problems(text)
    assert (line, column) == place
    assert message in told


def test_a_hint_quotes_the_whole_text_that_commas_cut() -> None:
    text = "{a: b, value: f(g(x), (0, 2)), c: d}"
    whole = {"a": "b", "value": "f(g(x), (0, 2))", "c": "d"}
    document = parse_document(text, "r.yaml")
    (problem,) = document.problems
    assert problem.code is Code.YAML
    assert document.value == whole  # so that what follows is checked, too
    assert problem.hint is not None
    quoted = problem.hint.removeprefix("Put it in single quotes: ")
    mended = parse_document(text.replace(quoted[1:-1], quoted), "r.yaml")
    assert (mended.value, mended.problems) == (whole, ())


@pytest.mark.parametrize("text", ["{a: 'f(x', b: 1}", "{a: f(x), b: (y}", "a: f(x,\n  (y, z))"])
def test_commas_that_cut_nothing(text: str) -> None:
    assert parse_document(text, "r.yaml").problems == ()


def test_problems_come_together() -> None:
    text = "a: no\nb: &x 010\na: 1\nc: [1:30, *x]\n"
    assert [p[:2] for p in problems(text)] == [(1, 4), (2, 4), (2, 4), (3, 1), (4, 5), (4, 11)]


def test_a_syntax_error_comes_after_what_was_found_before() -> None:
    first, second = problems("a: no\nb: [")
    assert first[:2] == (1, 4)
    assert "not valid YAML" in second[2]


def test_a_hostile_number_of_problems_is_cut_and_a_long_line_shown_around_them() -> None:
    with pytest.raises(RecipeError) as caught:
        parse_document("[" + "yes," * 50_000 + "]", "r.yaml")
    assert len(caught.value.problems) == MAX_PROBLEMS
    assert len(str(caught.value)) < 60_000


def test_deep_and_wide_documents_end_soon() -> None:
    assert "nested deeper" in problems("[" * 50_000)[0][2]
    assert "nested deeper" in problems("".join(" " * i + "a:\n" for i in range(1000)))[0][2]


def test_a_document_of_more_than_a_mebibyte_is_refused() -> None:
    assert "larger than 1 MiB" in problems("a" * (MAX_BYTES + 1))[0][2]
    assert "larger than 1 MiB" in problems("é" * (MAX_BYTES // 2 + 1))[0][2]


@examples(150)
@given(st.binary(max_size=60) | st.text("[]{}:,-?&*!|>'\"%@`# \n\taby01.~<\\", max_size=60).map(str.encode))
def test_anything_gives_a_document_or_a_short_error(data: bytes) -> None:
    try:
        parse_document(data.decode("latin-1"), "r.yaml")
    except SurgeryError as error:
        assert len(str(error)) < 5000


# --- places ---------------------------------------------------------------------------------------------

TEXT = """\
version: 1
rules:
  - match: 'it''s/(?P<n>.)'   # single
    to: "a\\u0062\\x63/\\"d"
    value: plain text
  - by: |
      first
        second
    when: >-
      folded
      over

      lines
    'quoted key': {in: flow}
    "d": "one \\
      two
      three"
"""


def column_of(document: YamlDocument, path: tuple[str | int, ...], part: str) -> tuple[int | None, int, str]:
    """Where the document says that a part of a scalar's value is, and the text there."""
    value: Any = document.value
    for name in path:
        value = value[name]
    start = value.index(part)
    place = document.place(path, start, start + len(part))
    return place.line, place.column, place.text[place.column - 1 : place.column - 1 + place.width]


def test_places_inside_scalars() -> None:
    for path, part, expected in (
        (("rules", 0, "match"), "s/", (3, 17, "s/")),  # after a doubled quote
        (("rules", 0, "match"), "(?P<n>", (3, 19, "(?P<n>")),
        (("rules", 0, "to"), "b", (4, 11, "\\u0062")),
        (("rules", 0, "to"), "c", (4, 17, "\\x63")),
        (("rules", 0, "to"), '"d', (4, 22, '\\"d')),
        (("rules", 0, "value"), "text", (5, 18, "text")),
        (("rules", 1, "by"), "first", (7, 7, "first")),
        (("rules", 1, "by"), "second", (8, 9, "second")),
        (("rules", 1, "when"), "over", (11, 7, "over")),
        (("rules", 1, "quoted key", "in"), "flow", (14, 24, "flow")),
        (("rules", 1, "d"), "two", (16, 7, "two")),
    ):
        assert column_of(parse_document(TEXT, "r.yaml"), path, part) == expected


STYLES = st.sampled_from([None, "'", '"', "|", ">"])


@examples(250)
@given(st.text("ab \n'\"\\:#é😀\t-x", min_size=1, max_size=60), STYLES, st.sampled_from([6, 20, 200]))
def test_every_character_of_every_style_is_found(value: str, style: Any, width: int) -> None:
    text = yaml.safe_dump({"k": {"v": value}}, default_style=style, width=width, allow_unicode=True)
    document = parse_document(text, "r.yaml")
    key = ("k", "v")
    if document.value != {"k": {"v": value}}:
        return  # PyYAML does not always read what it wrote
    for i, character in enumerate(value):
        place = document.place(key, i, i + 1)
        assert place.line is not None
        at = text.split("\n")[place.line - 1][place.column - 1 :]
        if not character.isspace():
            assert at.startswith((character, "\\"))


def test_places_of_keys_containers_and_missing_fields() -> None:
    document = parse_document(TEXT, "r.yaml")
    key = document.key_place(("rules", 0, "to"))
    assert (key.line, key.column, key.width) == (4, 5, 2)
    assert document.key_place(("rules", 1, "quoted key")).width == len("'quoted key'")
    assert document.key_place(("rules", 1, "quoted key"), 0, 6).column == 6
    rule = document.place(("rules", 1))
    assert (rule.line, rule.column, rule.width) == (6, 5, 1)
    missing = document.place(("rules", 1, "to"), 3, 4)
    assert (missing.line, missing.column, missing.path) == (6, 5, "rules[1].to")
    assert document.place(("nothing",)).line == 1


def test_a_place_has_the_whole_line_and_stays_on_it() -> None:
    place = parse_document("a: |\n  one\n  two\n", "dir/r.yaml").place(("a",), 0, 7)
    assert (place.file, place.path, place.line, place.text, place.width) == ("dir/r.yaml", "a", 2, "  one", 3)


def test_lines_end_as_on_any_system() -> None:
    for end in ("\n", "\r\n", "\r"):
        assert parse_document(f"a: 1{end}b: 2{end}", "r.yaml").place(("b",)).line == 2


def test_a_line_is_safe_to_print_and_columns_hold() -> None:
    place = parse_document("a: 'x\u2028y\u202e\tz'\nb: 1", "r.yaml").place(("a",), 5, 6)
    assert (place.line, place.column, place.text) == (1, 10, "a: 'x�y� z'")


def test_path_text() -> None:
    for path, text in (
        ((), ""),
        (("rules", 3, "value"), "rules[3].value"),
        (("passes", 1, "rules", 0, "to", "${p}/q"), "passes[1].rules[0].to['${p}/q']"),
        (("tables", "m", 0), "tables.m[0]"),
    ):
        assert path_text(path) == text


# --- the lines of a value -------------------------------------------------------------------------------


def test_a_value_has_the_lines_that_it_is_written_on() -> None:
    text = (
        "version: 1\r\nrules:\r\n  - match: a\r\n    to: {b: x,\r\n      c: 'x'}\r\n  # a comment\r\n\r\n"
        "  - match: d\r\n    value: |\r\n      x +\r\n\t  1\r\n\r\n# the end\r\n"
    ).replace("\t  1", "      1\t")
    document = parse_document(text, "r.yaml")
    assert document.lines(("rules", 0)) == [(3, "  - match: a"), (4, "    to: {b: x,"), (5, "      c: 'x'}")]
    assert document.lines(("rules", 1)) == [
        (8, "  - match: d"),
        (9, "    value: |"),
        (10, "      x +"),
        (11, "      1 "),
    ]
    assert document.lines(("version",)) == [(1, "version: 1")]


# --- offsets of a scalar's characters --------------------------------------------------------------------


def test_offsets() -> None:
    for raw, style, offsets in (
        (r'"\u00e9x"', '"', [1, 7, 8]),
        (r'"\ud83d\ude00x"', '"', [1, 13, 14]),
        ("a\n  b", "", [0, 1, 4, 5]),
        ("|\n ab\n cd", "|", [3, 4, 5, 7, 8, 9]),
    ):
        value = paired(yaml.safe_load(raw))
        assert value_offsets(raw, style, value) == offsets
        assert len(offsets) == len(value) + 1


def test_text_that_is_not_the_value_gives_nothing() -> None:
    assert value_offsets("abc", "", "abd") is None
    assert value_offsets("abc", "", "abcd") is None


def test_surrogates() -> None:
    assert paired("a\ud83d\ude00") == "a\N{GRINNING FACE}"
    assert paired("a\ud83d") == "a\N{REPLACEMENT CHARACTER}"
    assert paired("plain") == "plain"
