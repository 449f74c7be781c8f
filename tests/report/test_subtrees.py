"""Which subtrees the picture of a plan shows, and what became of their bytes."""

import pytest

from ckpt_surgery.report.subtrees import Share, key_parts, subtrees


def share(key: str, way: str = "linked", nbytes: int = 1) -> Share:
    return Share(key_parts(key), way, nbytes)


def shown(*shares: Share, most: int = 12) -> list[tuple[str, int, int]]:
    return [(one.name, one.leaves, one.nbytes) for one in subtrees(shares, most)]


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("params/a.b/c", ("params/", "a.b/", "c")),
        ("model.layers.0.weight", ("model.", "layers.", "0.", "weight")),
        ("step", ("step",)),
        ("a/", ("a/",)),
        ("", ()),
    ],
)
def test_keys_are_cut_after_each_separator(key: str, parts: tuple[str, ...]) -> None:
    assert key_parts(key) == parts


def test_the_largest_subtree_is_opened_as_long_as_there_is_room() -> None:
    shares = [*(share(f"params/a/{i}", nbytes=10) for i in range(3)), share("params/b", nbytes=5), share("c")]
    assert shown(*shares, most=2) == [("params/…", 4, 35), ("c", 1, 1)]
    assert shown(*shares, most=3) == [("params/a/…", 3, 30), ("params/b", 1, 5), ("c", 1, 1)]
    deepest = [*((f"params/a/{i}", 1, 10) for i in range(3)), ("params/b", 1, 5), ("c", 1, 1)]
    assert shown(*shares, most=5) == deepest
    assert shown(*shares) == deepest


def test_more_than_fit_are_shown_as_others() -> None:
    shares = [share(f"w{i}", nbytes=9 - i) for i in range(5)]
    assert shown(*shares, most=3) == [("w0", 1, 9), ("w1", 1, 8), ("(others)", 3, 18)]


def test_bytes_are_counted_by_what_happened_to_them() -> None:
    (found,) = subtrees([share("a/x", "linked", 3), share("a/y", "dropped", 4), share("a/z", "linked", 1)], 1)
    assert dict(found.ways) == {"linked": 4, "dropped": 4}
    assert (found.name, found.leaves, found.nbytes) == ("a/…", 3, 8)


def test_a_key_may_be_the_beginning_of_others() -> None:
    """Of two sources, say: what one keeps as a leaf is a subtree of the other."""
    assert shown(share("a", nbytes=2), share("a/b")) == [("a", 1, 2), ("a/b", 1, 1)]


def test_nothing_has_no_subtrees() -> None:
    assert subtrees([]) == []
