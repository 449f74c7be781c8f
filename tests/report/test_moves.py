"""Subtrees that moved, stayed or went as a whole, from one subtree or from several."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.report.moves import LeafMove, Mirrored, RowPattern, Subtree, mirrored, subtrees
from tests.support.effort import examples

NAMES = st.sampled_from(["a", "b", "c"])
KEYS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def parts(key: str | None) -> tuple[str, ...] | None:
    return None if key is None else tuple(key.split("/"))


def found(*moves: tuple[str | None, str | None, str | None]) -> list[Subtree]:
    """The subtrees; a move's sources are separated by spaces."""
    sources = [tuple([] if source is None else source.split()) for _, source, _ in moves]
    made = [
        LeafMove(parts(key), tuple([tuple(one.split("/")) for one in having]), like if having else None)
        for (key, _, like), having in zip(moves, sources, strict=True)
    ]
    return subtrees(made, [tuple(one.split("/")) for one in dict.fromkeys(sum(sources, ()))])


def test_what_was_renamed_dropped_or_kept_as_a_whole() -> None:
    assert found(("h/1/q", "x/0/q", "r"), ("h/1/k/w", "x/0/k/w", "r"), ("z", "z", "k")) == [
        Subtree("h/1", ("x/0",), (0, 1), (("q",), ("k", "w"))),
        Subtree("z", ("z",), (2,), ((),)),
    ]
    assert found((None, "opt/mu", "d")) == [Subtree(None, ("opt/mu",), (0,), ((),))]
    assert found(
        (None, "opt/mu", "d"), (None, "opt/nu/w", "d"), ("p/a", "p/a", "k"), ("p/b", "p/b", "k")
    ) == [
        Subtree(None, ("opt",), (0, 1), (("mu",), ("nu", "w"))),
        Subtree("p", ("p",), (2, 3), (("a",), ("b",))),
    ]


@pytest.mark.each
@pytest.mark.parametrize(
    ("moves", "keys"),
    [
        ([("h/x", "o/x", "r"), ("h/y", "o/y", "r"), ("h/z", "z", "r")], ["h/x", "h/y", "h/z"]),
        (
            [("h/a/x", "o/a/x", "r"), ("h/a/y", "o/a/y", "r"), ("h/b", "o/b/x", "r"), (None, "o/b/y", "d")],
            ["h/a", "h/b", None],
        ),
        ([("h/x", "o/x", "r"), ("h/y", "o/y", "s")], ["h/x", "h/y"]),
        ([("h/x", "o/x", None), ("h/y", "o/y", None)], ["h/x", "h/y"]),
    ],
    ids=["one came from elsewhere", "one went elsewhere", "another rule", "shown leaf by leaf"],
)
def test_what_parts_a_subtree(moves: list[tuple[str | None, str, str | None]], keys: list[str]) -> None:
    assert [one.key for one in found(*moves)] == keys


@examples(300)
@given(
    st.lists(st.tuples(KEYS, st.none() | KEYS, st.sampled_from("rs")), max_size=12, unique_by=lambda t: t[0])
)
def test_every_line_is_exact(drawn: list[tuple[str, str | None, str]]) -> None:
    """Each leaf is in one subtree; what is below a subtree's keys is what it has, and nothing else."""
    results = Counter(key for _, key, _ in drawn if key is not None)
    moves = [(key if key is None or results[key] == 1 else None, source, like) for source, key, like in drawn]
    lines = found(*moves)
    assert sorted(n for line in lines for n in line.members) == list(range(len(moves)))
    for line in lines:
        for n, rest in zip(line.members, line.rests, strict=True):
            source = line.sources[0] if line.sources else None
            ends = (None if one is None else "/".join((one, *rest)) for one in (line.key, source))
            assert tuple(ends) == moves[n][:2]
        if line.rests != ((),):
            for place, head in ((0, line.key), (1, source)):
                below = {n for n, move in enumerate(moves) if (move[place] or "").startswith(f"{head}/")}
                assert head is None or below == set(line.members)
            assert len({moves[n][2] for n in line.members}) == 1


def test_a_subtree_of_what_several_subtrees_had() -> None:
    moves = [("p/a", "x:p/a y:p/a", "r"), ("p/b/c", "x:p/b/c y:p/b/c", "r")]
    assert found(*moves) == [Subtree("p", ("x:p", "y:p"), (0, 1), (("a",), ("b", "c")))]
    # A leaf of one of them went elsewhere, so that no line may claim all of it.
    assert [one.key for one in found(*moves, (None, "y:p/z", "d"))] == ["p/a", "p/b/c", None]
    other_order = [moves[0], ("p/b/c", "y:p/b/c x:p/b/c", "r")]
    assert [one.key for one in found(*other_order)] == ["p/a", "p/b/c"]


def mirrors(pairs: list[tuple[str, str, str]]) -> list[tuple[int, tuple[str, ...]]]:
    found = mirrored([RowPattern(*pair) for pair in pairs])
    return [(one.number, tuple(tree for _, tree in one.also)) for one in found]


def test_mirrors_of_a_rename() -> None:
    pairs = [
        ("opt/mu/h/{0..3}", "opt/mu/x/{1..4}", "r"),
        ("params/h/{0..3}", "params/x/{1..4}", "r"),
        ("opt/nu/h/{0..3}", "opt/nu/x/{1..4}", "r"),
        ("opt/nu/h/{0..3}", "opt/nu/x/{0..3}", "r"),
        ("ema/h/{0..3}", "ema/x/{1..4}", "another"),
    ]
    assert mirrors(pairs) == [(1, ("opt/mu", "opt/nu")), (3, ()), (4, ())]


def test_what_keeps_its_key_is_mirrored_where_a_rename_is() -> None:
    rename = [("p/b", "p/a", "r"), ("opt/mu/b", "opt/mu/a", "r")]
    same = [("p/w", "p/w", "t"), ("opt/mu/w", "opt/mu/w", "t"), ("opt/mu/v", "opt/mu/v", "t")]
    assert mirrors([*same, *rename]) == [(0, ("opt/mu",)), (2, ()), (3, ("opt/mu",))]
    assert mirrors(same) == [(0, ()), (1, ()), (2, ())]


def test_the_trees_are_named_that_differ() -> None:
    pairs = [("params/params/h", "params/params/x", "r"), ("opt/nu/params/h", "opt/nu/params/x", "r")]
    assert mirrors(pairs) == [(0, ("opt/nu",))]
    # Keys without a common beginning are no mirrors.
    assert mirrors([("a", "b", "r"), ("c", "b", "r"), ("a", "b", "r")]) == [(0, ()), (1, ()), (2, ())]


def test_whole_subtrees_with_the_same_leaves_are_mirrors() -> None:
    leaves = (("w",), ("b",))
    trees = [RowPattern(key, key, leaves, whole=True) for key in ("opt/0/mu", "opt/0/nu", "params")]
    kept = [RowPattern(f"{tree}/v", f"{tree}/v", "v") for tree in ("opt/0/mu", "params")]
    assert mirrored(trees + kept) == [
        Mirrored(2, ((0, "opt/0/mu"), (1, "opt/0/nu"))),
        Mirrored(4, ((3, "opt/0/mu"),)),
    ]
    assert len(mirrored([*trees[:2], RowPattern("params", "params", leaves[:1], whole=True)])) == 2


def test_trees_of_slots_with_other_shapes() -> None:
    """As in optax: `v_row/layer/w` and `v_col/layer/w` beside `params/layer/w`."""
    rename = [(f"{tree}/b/w", f"{tree}/a/w") for tree in ("opt/v_row", "opt/v_col", "params")]
    rows = [RowPattern(key, source, n, loose="renamed") for n, (key, source) in enumerate(rename)]
    assert mirrored(rows) == [Mirrored(2, (), ((1, "opt/v_col"), (0, "opt/v_row")))]
    assert mirrored([RowPattern(key, source, n) for n, (key, source) in enumerate(rename)]) == [
        Mirrored(0),
        Mirrored(1),
        Mirrored(2),
    ]


def test_slots_below_the_names_of_parameters() -> None:
    """As in T5X: `state/param_states/layer/w/v_row` beside `target/layer/w`."""

    def row(key: str, source: str, like: str = "r") -> RowPattern:
        return RowPattern(key, source, key, loose=like)

    by_suffix = [row("target/b/w", "a/w"), row("state/b/w/v_row", "a/w_slot_vr"), row("state/b/w/v", "c/w")]
    assert mirrored(by_suffix) == [Mirrored(0, (), ((1, "v_row"),)), Mirrored(2)]
    in_a_tree = [row("target/b/w", "target/a/w"), row("state/b/w/v_row", "state/a/w/v_row")]
    assert mirrored(in_a_tree) == [Mirrored(0, (), ((1, "v_row"),))]
    assert mirrored([in_a_tree[0], row("state/b/w/v_row", "state/a/w/v_row", "another")]) == [
        Mirrored(0),
        Mirrored(1),
    ]
    assert len(mirrored([row("target/b/w", "target/a/w"), row("state/b/w/name", "state/a/w/name")])) == 2
