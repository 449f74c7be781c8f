"""The text that `inspect` shows, to the character."""

from dataclasses import replace

import pytest

from ckpt_surgery.cli.render.inspection import MOST_PATTERNS, inspection_lines, statistics_lines
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.report.histograms import Histogram
from ckpt_surgery.report.inspection import Inspection
from ckpt_surgery.report.leaves import Statistics, Unread
from tests.support.leaves import array_leaf


@pytest.fixture
def found(leaves) -> Inspection:
    values = {"step": 1234}
    return Inspection("/ckpt", "orbax", 10, "default", {"epoch": 3}, leaves, values=values)


HEAD = """\
/ckpt  (orbax, step 10, item default)
27 leaves, 509 MiB, 266,887,168 parameters, 266,887,169 elements
dtypes bf16 509 MiB in 13 leaves, f32 96.0 KiB in 12 leaves, i64 8 B in 1 leaf
metadata {"epoch": 3}
"""
MESH = "mesh x:4,y:2\n\n"
TREE = """\
params                 25 leaves, 267M elements   509 MiB
  layer_{0..11}        24 leaves, 201M elements   384 MiB
    mlp/kernel   12 ×  bf16[2048,8192]            384 MiB  P('x', None)
    ln           12 ×  f32[2048]                 96.0 KiB
  embed                bf16[32000,2048]           125 MiB
step                   scalar i64 = 1234              8 B
name                   string "t"                     0 B"""
FLAT = """\
params/layer_{0..11}/mlp/kernel  12 ×  bf16[2048,8192]     384 MiB  P('x', None)
params/layer_{0..11}/ln          12 ×  f32[2048]          96.0 KiB
params/embed                           bf16[32000,2048]    125 MiB
step                                   scalar i64 = 1234       8 B
name                                   string "t"              0 B"""


def listed(found, *, flat=False, full=False, verbose=False, width=100) -> str:
    lines = inspection_lines(found, flat=flat, full=full, verbose=verbose, width=width)
    return "\n".join(line.plain for line in lines)


def below_head(text: str) -> str:
    return text.partition("\n\n")[2]


def test_a_tree_and_a_flat_list(found):
    assert listed(found) == HEAD + MESH + TREE
    assert listed(found, flat=True) == HEAD + MESH + FLAT
    assert "384 MiB  P('x', None)  [512,8192] C zstd\n" in listed(found, verbose=True)
    assert below_head(listed(found, full=True)).split("\n")[22:24] == [
        "  layer_7       2 leaves, 16.8M elements  32.0 MiB",
        "    mlp/kernel  bf16[2048,8192]           32.0 MiB  P('x', None)",
    ]


def test_what_was_not_asked_for(found):
    choices = Choices(tuple(range(1, 11)), (11,), ("default", "meta"))
    text = listed(replace(found, choices=choices, others=1000))
    assert "\n27 of 1,027 leaves, 509 MiB, " in text
    assert text.split("\n")[3:6] == [
        "steps 2 more, 3, 4, 5, 6, 7, 8, 9, 10",
        "unfinished steps 11",
        "items default, meta",
    ]


def test_meshes_stay_in_the_lines_where_they_differ(found):
    other = found.leaves[0].sharding.replace("[4, 2]", "[2, 4]")
    text = listed(replace(found, leaves=(*found.leaves, array_leaf("other", (8, 8), sharding=other))))
    assert "P('x', None) on mesh x:4,y:2\n" in text
    assert text.endswith("P('x', None) on mesh x:2,y:4")
    assert "\nmesh" not in text


def test_what_does_not_fit_is_below_the_key(found):
    assert below_head(listed(found, flat=True, verbose=True, width=60)).split("\n")[:4] == [
        "params/layer_{0..11}/mlp/kernel",
        "    12 ×  bf16[2048,8192]   384 MiB  P('x', None)",
        "    [512,8192] C zstd",
        "params/layer_{0..11}/ln   12 ×  f32[2048]          96.0 KiB",
    ]


def test_long_metadata_is_cut_short_and_broken_between_words(found):
    long = replace(found, metadata={"k": "x" * 500})
    assert listed(long).split("\n")[3:5] == ['metadata {"k":', '    "' + "x" * 193 + "…"]
    assert "x" * 500 in listed(long, verbose=True)


def test_a_leaf_may_have_leaves_below_it_and_deep_keys_need_no_recursion(found):
    def of_keys(*keys: str) -> str:
        leaves = tuple(array_leaf(key, ()) for key in keys)
        return below_head(listed(replace(found, leaves=leaves, values={})))

    lines = of_keys("a", "a/b", "a//c", "").split("\n")
    assert [line.partition("f32")[0].rstrip() for line in lines] == ["a", "  b", "  /c", ""]
    assert of_keys(*("/".join("x" * n) for n in range(1, 1500, 50))).count("f32[]") == 30


@pytest.fixture
def measured(leaves) -> Inspection:
    numbers = {
        "params/embed": Statistics(-1.0, 2.0, 1e-9, 1 / 3, 0, 4, Histogram(0, -1, (1, 0, 8))),
        "step": Statistics(None, None, None, None, 1, 0),
    }
    return Inspection("/ckpt", "orbax", 10, "default", {}, leaves[-3:], numbers)


def lines_of(measured, width, full=False) -> list[str]:
    text = "\n".join(line.plain for line in statistics_lines(measured, full=full, verbose=False, width=width))
    return text.partition("\n\n")[2].split("\n")


WIDE = [
    "params/embed  bf16[32000,2048]  min -1  max 2  mean 1e-09  std 0.3333  ▁ █  4 inf",
    "step          scalar i64        min -   max -  mean -      std -            1 NaN",
    "name          string",
    "",
    "NaN in 1 leaf",
    "  step  scalar i64",
    "inf in 1 leaf",
    "  params/embed  bf16[32000,2048]",
]


def test_a_line_for_each_leaf_or_two_where_there_is_no_room(measured):
    assert lines_of(measured, len(WIDE[0])) == WIDE
    assert lines_of(measured, len(WIDE[0]) - 1)[:6] == [
        "params/embed  bf16[32000,2048]",
        "    min -1  max 2  mean 1e-09  std 0.3333  ▁ █  4 inf",
        "step          scalar i64",
        "    min -   max -  mean -      std -            1 NaN",
        "name          string",
        "",
    ]


def test_what_could_not_be_read_and_nothing_unusual(measured):
    numbers = {
        "step": Unread("it is\x1b gone", damaged=True),
        "params/embed": Statistics(-1.0, 2.0, 0.5, 0.1, 0, 0),
    }
    lines = lines_of(replace(measured, statistics=numbers), 100)
    assert lines[1] == "step          scalar i64        not read: it is\\x1b gone"
    assert lines[-1] == "nothing unusual: no NaN, no inf, no array of zeros, no mixed dtypes"


def test_unusual_leaves_are_folded_and_only_the_first_are_listed(measured):
    names = [f"{letter}/{i}" for letter in "abcdefghijkl" for i in range(2)]
    zeros = {name: Statistics(0.0, 0.0, 0.0, 0.0, 0, 0) for name in names}
    all_zeros = replace(measured, leaves=tuple(map(array_leaf, names)), statistics=zeros)
    lines = lines_of(all_zeros, 100)
    assert lines[-12:-10] == ["nothing but zeros in 24 leaves", "  a/{0,1}  2 × f32[2,3]"]
    assert lines[-1] == f"  and {12 - MOST_PATTERNS} more (--full)"
    assert lines_of(all_zeros, 100, full=True)[-1] == "  l/{0,1}  2 × f32[2,3]"
