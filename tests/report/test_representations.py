"""What plans, comparisons and listings show of themselves: as the printed diff, whatever their size."""

import re
from dataclasses import replace

import pytest

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Dropped, DroppedItem, Fate, Plan
from ckpt_surgery.report.differences import ComparedLeaf, Difference, diff_trees
from ckpt_surgery.report.inspection import Inspection
from tests.report.test_html import hostile, plan_of, small, step
from tests.support.leaves import array_leaf, by_key, leaf

SIZES = (6, 164, 5000)
MANY = 1000
"""Number of leaves of which all have names of their own, from which on they are named alike."""
RULE = RuleRef("rules[0]", 3)


def word(number: int) -> str:
    """A name without digits, so that no two keys fold."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def leaves_of(count: int) -> list[Leaf]:
    own = [f"params/{word(i % 7)}/{word(i)}" for i in range(min(count, MANY))]
    alike = [f"opt/{i % 9}/layer_{i}/mu" for i in range(count - len(own))]
    return [array_leaf(key, (8, 4)) for key in (*own, *alike)]


def plan(count: int) -> Plan:
    """A plan in which each leaf has a row of its own: of three leaves one is renamed and one is dropped."""
    leaves = leaves_of(count)
    steps = [
        step(one, Fate.RENAMED, read=array_leaf(f"old/{i}/{one.key.text}", (8, 4)), rule=RULE)
        for i, one in enumerate(leaves)
        if i % 3
    ]
    return plan_of(steps, [Dropped("source", one, RULE, "drop") for one in leaves[::3]])


def inspection(count: int) -> Inspection:
    return Inspection("/ckpt", "orbax", 3, None, {}, tuple(leaves_of(count)))


def difference(count: int) -> Difference:
    leaves = leaves_of(count)
    changed = [array_leaf(one.key.text, (4, 8)) for one in leaves[1::2]]
    return diff_trees(by_key(*leaves), by_key(*changed, array_leaf("new")))


def assert_short(value: Plan | Inspection | Difference) -> None:
    text, page = repr(value), value._repr_html_()
    assert text.startswith(f"<{type(value).__name__} ")
    assert len(text) <= 2000
    assert len(text.splitlines()) <= 25
    assert text.replace("\n", "").isprintable()
    assert len(page.encode()) <= 200_000


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("made", [plan, inspection, difference])
def test_no_representation_grows_with_the_checkpoint(made, count: int) -> None:
    assert_short(made(count))


def test_every_leaf_of_a_large_one_is_shown_or_counted() -> None:
    lines = repr(inspection(164)).splitlines()
    (more,) = [int(found[1]) for line in lines if (found := re.search(r"and (\d+) more leaves", line))]
    assert more == 164 - 20
    assert sum("params/" in line for line in lines) == 20


def test_a_plan_shows_the_printed_diff_with_surprises_last() -> None:
    assert [line.split() for line in repr(small()).splitlines()] == [
        ["<Plan", "3", "leaves", "→", "2:", "1", "kept,", "1", "transformed,", "1", "DROPPED>"],
        ["r.yaml:", "/ckpt/old", "(orbax)"],
        ["kept", "1", "leaf,", "16", "B"],
        ["transformed", "b/w", "→", "a/b/w", "f32[50,16]", "→", "f16[50,16]", "rules[0],", "line", "3"],
        ["DROPPED", "opt/mu", "f32[50,16]", "rules[2],", "line", "7"],
        ["1.58", "KiB", "linked,", "0", "B", "to", "read,", "peak", "memory", "1.00", "MiB"],
    ]
    _, _, first, *_, last, _ = repr(plan(164)).splitlines()
    assert first.split()[0] == "renamed"
    assert last.split()[0] == "DROPPED"


def test_items_that_are_not_written_are_in_it_and_numbered_warnings() -> None:
    gone = DroppedItem("source", "optimizer", "arrays", 8, "only the item params is written")
    told = repr(plan_of([], dropped_items=(gone,), warnings=("one", "two", "three")))
    assert "DROPPED      item optimizer" in told
    assert told.splitlines()[-1] == "  Warning 1 of 3: one"


def test_of_a_listing_a_notebook_shows_the_tree() -> None:
    leaves = tuple(leaf(f"a/{i}/{name}") for i in range(3) for name in "wb")
    listed = Inspection("/c", "orbax", None, None, {}, leaves)
    assert [line.split()[0] for line in repr(listed).splitlines()[2:]] == ["a/{0..2}/w", "a/{0..2}/b"]
    assert re.findall("<code>(.*?)</code>", listed._repr_html_()) == ["a/{0..2}", "w", "b"]
    page = inspection(164)._repr_html_()  # of a large tree, the upper levels
    assert re.findall("<code>(.*?)</code>", page) == ["params", *(f"{word(i)}/…" for i in range(7))]


def test_a_comparison_says_what_differs_or_that_nothing_does() -> None:
    lines = repr(difference(6)).splitlines()
    assert lines[0] == "<Difference different: 3 only in A, 1 only in B, 3 changed; 3 leaves in both>"
    assert [line[:12].strip() for line in lines[1:]] == [*["only in A"] * 3, "only in B", *["changed"] * 3]
    leaves = by_key(*leaves_of(6))
    assert repr(diff_trees(leaves, leaves)) == "<Difference same: keys, kinds, shapes, dtypes (6 leaves)>"


def test_a_distance_is_whole_in_a_representation() -> None:
    """The relative one and the cosine are left out: a column as wide as all of them would be cut."""
    same = diff_trees(by_key(array_leaf("w")), by_key(array_leaf("w")))
    far = ComparedLeaf("w", ("w",), False, 0.0009174, 0.0004884, 0.99999998)
    row = repr(replace(same, values=(far,))).splitlines()[1]
    assert " ".join(row.split()) == "values w max abs 0.0009174"


def test_hostile_names_stay_text() -> None:
    leaves = (array_leaf("\x1b[2J\n\u202e" * 999),)
    for value in (hostile(), Inspection("\x1b[31m", "\n", 1, "\x1b", {}, leaves)):
        assert_short(value)
        page = value._repr_html_()
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert "<script" not in page
        assert "<img" not in page
