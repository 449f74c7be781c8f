"""Subtrees that moved, stayed or went as a whole, from one subtree or from several."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.report.moves import LeafMove, Subtree, subtrees

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


def test_a_renamed_subtree() -> None:
    assert found(("h/1/q", "x/0/q", "r"), ("h/1/k/w", "x/0/k/w", "r"), ("z", "z", "k")) == [
        Subtree("h/1", ("x/0",), (0, 1), (("q",), ("k", "w"))),
        Subtree("z", ("z",), (2,), ((),)),
    ]


def test_what_was_dropped_and_what_stayed() -> None:
    assert found(
        (None, "opt/mu", "d"), (None, "opt/nu/w", "d"), ("p/a", "p/a", "k"), ("p/b", "p/b", "k")
    ) == [
        Subtree(None, ("opt",), (0, 1), (("mu",), ("nu", "w"))),
        Subtree("p", ("p",), (2, 3), (("a",), ("b",))),
    ]


def test_one_leaf_is_no_subtree() -> None:
    assert found((None, "opt/mu", "d")) == [Subtree(None, ("opt/mu",), (0,), ((),))]


def test_a_leaf_that_went_elsewhere_parts_a_subtree() -> None:
    moves = [("h/a/x", "o/a/x", "r"), ("h/a/y", "o/a/y", "r"), ("h/b/x", "o/b/x", "r"), (None, "o/b/y", "d")]
    assert [(one.key, *one.sources) for one in found(*moves)] == [
        ("h/a", "o/a"),
        ("h/b/x", "o/b/x"),
        (None, "o/b/y"),
    ]


def test_a_leaf_that_came_from_elsewhere_parts_a_subtree() -> None:
    moves = [("h/x", "o/x", "r"), ("h/y", "o/y", "r"), ("h/z", "z", "r")]
    assert [one.key for one in found(*moves)] == ["h/x", "h/y", "h/z"]


def test_another_rule_parts_a_subtree() -> None:
    assert [one.key for one in found(("h/x", "o/x", "r"), ("h/y", "o/y", "s"))] == ["h/x", "h/y"]


def test_what_is_shown_leaf_by_leaf_is_in_no_subtree() -> None:
    assert [one.key for one in found(("h/x", "o/x", None), ("h/y", "o/y", None))] == ["h/x", "h/y"]


@settings(max_examples=300)
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
