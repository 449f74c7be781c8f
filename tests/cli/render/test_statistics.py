"""The text that `inspect --stats` shows, to the character."""

from dataclasses import replace

import pytest

from ckpt_surgery.cli.render.inspection import MOST_PATTERNS, statistics_lines
from ckpt_surgery.report.histograms import Histogram
from ckpt_surgery.report.inspection import Inspection
from ckpt_surgery.report.leaves import Statistics, Unread
from tests.support.leaves import array_leaf


@pytest.fixture
def found(leaves) -> Inspection:
    numbers = {
        "params/embed": Statistics(-1.0, 2.0, 1e-9, 1 / 3, 0, 4, Histogram(0, -1, (1, 0, 8))),
        "step": Statistics(None, None, None, None, 1, 0),
    }
    return Inspection("/ckpt", "orbax", 10, "default", {}, leaves[-3:], numbers)


def listed(found, width, full=False) -> list[str]:
    text = "\n".join(line.plain for line in statistics_lines(found, full=full, verbose=False, width=width))
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


def test_a_line_for_each_leaf_where_there_is_place(found):
    assert listed(found, len(WIDE[0])) == WIDE


def test_two_lines_for_each_leaf_where_there_is_not(found):
    assert listed(found, len(WIDE[0]) - 1)[:6] == [
        "params/embed  bf16[32000,2048]",
        "    min -1  max 2  mean 1e-09  std 0.3333  ▁ █  4 inf",
        "step          scalar i64",
        "    min -   max -  mean -      std -            1 NaN",
        "name          string",
        "",
    ]


def test_what_could_not_be_read(found):
    unread = {"step": Unread("it is\x1b gone", damaged=True)}
    assert listed(replace(found, statistics=unread), 100)[1] == (
        "step          scalar i64        not read: it is\\x1b gone"
    )


def test_nothing_unusual(found):
    numbers = {"params/embed": Statistics(-1.0, 2.0, 0.5, 0.1, 0, 0)}
    assert listed(replace(found, statistics=numbers), 100)[-1] == (
        "nothing unusual: no NaN, no inf, no array of zeros, no mixed dtypes"
    )


def test_unusual_leaves_are_folded_and_only_the_first_are_listed(found):
    names = [f"{letter}/{i}" for letter in "abcdefghijkl" for i in range(2)]
    zeros = {name: Statistics(0.0, 0.0, 0.0, 0.0, 0, 0) for name in names}
    all_zeros = replace(found, leaves=tuple(map(array_leaf, names)), statistics=zeros)
    lines = listed(all_zeros, 100)
    assert lines[-12:-10] == ["nothing but zeros in 24 leaves", "  a/{0,1}  2 × f32[2,3]"]
    assert lines[-1] == f"  and {12 - MOST_PATTERNS} more (--full)"
    assert listed(all_zeros, 100, full=True)[-1] == "  l/{0,1}  2 × f32[2,3]"
