"""Rows that say the same of several trees: params and moments, parameters and slots of Adafactor."""

from ckpt_surgery.report.moves import Mirrored, RowPattern, mirrored


def mirrors(pairs: list[tuple[str, str, str]]) -> list[tuple[int, tuple[str, ...]]]:
    found = mirrored([RowPattern(*pair) for pair in pairs])
    return [(one.index, tuple(tree for _, tree in one.also)) for one in found]


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


def test_keys_without_a_common_beginning_are_no_mirrors() -> None:
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
