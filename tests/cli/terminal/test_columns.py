"""Cells in columns, which are never broken themselves."""

from rich.text import Text

from ckpt_surgery.cli.terminal.columns import flowing, padded, rows_of

NAMES = [Text("a/kernel"), Text("a/much/longer/key/than/the/others")]
ROWS = padded(
    [
        [Text("12 ×"), Text("f32[4]"), Text(), Text("8 B")],
        [Text(), Text("bf16[10,10]"), Text(), Text("200 B")],
    ],
    (0, 3),
)


def plain(lines):
    return [line.plain for line in lines]


def test_empty_columns_are_left_out_and_the_others_aligned():
    assert [[cell.plain for cell in row] for row in ROWS] == [
        ["12 ×", "f32[4]     ", "  8 B"],
        ["    ", "bf16[10,10]", "200 B"],
    ]
    assert padded([], (0,)) == []


def test_what_does_not_fit_follows_on_the_next_line():
    assert plain(rows_of(NAMES, ROWS, 80)) == [
        "a/kernel                           12 ×  f32[4]         8 B",
        "a/much/longer/key/than/the/others        bf16[10,10]  200 B",
    ]
    assert plain(rows_of(NAMES, ROWS, 58)) == [
        "a/kernel                          12 ×  f32[4]         8 B",
        "a/much/longer/key/than/the/others  bf16[10,10]  200 B",
    ]
    assert plain(rows_of(NAMES, ROWS, 30, 2)) == [
        "a/kernel",
        "  12 ×  f32[4]    8 B",
        "a/much/longer/key/than/the/others",
        "  bf16[10,10]  200 B",
    ]
    assert plain(rows_of([Text("a → b/c/d")], [[Text("x")]], 8, 2)) == ["a", "  → b/c/d", "  x"]
    assert plain(rows_of(NAMES[:1], ROWS[:1], 12)) == ["a/kernel", "    12 ×", "    f32[4]", "      8 B"]
    assert plain(rows_of(NAMES[1:], [[Text("  ")]], 12)) == ["a/much/longer/key/than/the/others"]


def test_text_flows_between_its_parts():
    parts = [Text("one two"), Text("three"), Text("four")]
    assert plain(flowing(parts, ", ", 80)) == ["one two, three, four"]
    assert plain(flowing(parts, ", ", 15)) == ["one two, three,", "    four"]
    assert plain(flowing(parts, "  ", 3)) == ["one two", "    three", "    four"]
    assert plain(flowing([], ", ", 80)) == []
