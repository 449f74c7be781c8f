"""Subtrees whose every leaf meets the same fate."""

from ckpt_surgery.inference.drafts.drafting import draft_recipe
from ckpt_surgery.inference.drafts.key_patterns import BELOW
from ckpt_surgery.inference.drafts.parts import Kind, RulePart
from ckpt_surgery.inference.drafts.subtree_rules import made_parts, plain_parts, subtrees
from ckpt_surgery.inference.expressions.formations import Evidence, Findings, Formation, Value
from tests.support.findings import found


def described(part: RulePart) -> tuple[str, list[str], str | None]:
    texts = [place.text + "*" * (BELOW in place.pattern.groups) for place in part.sources]
    return part.kind.value, texts, None if part.target is None else part.target.text


def test_the_largest_subtrees() -> None:
    keys = ["a/b/c", "a/b/d", "a.e", "f/g", "f/h", "i"]
    assert list(subtrees(keys, lambda key, _: key[0] == "a" or None)) == [(2, ["a/b/c", "a/b/d"])]
    assert list(subtrees(keys, lambda key, _: True)) == [(0, sorted(keys))]
    assert [len(below) for _, below in subtrees(keys, lambda key, length: length > 0 or None)] == [2, 2]
    assert list(subtrees([], lambda key, _: True)) == []


def test_a_subtree_moves_if_all_of_it_does() -> None:
    moves = [("n/x/a", "o/x/a", "x"), ("n/x/b", "o/x/b", "x"), ("n/y/a", "o/y/a", "x")]
    assert [described(part) for part in made_parts(found(moves))] == [("made", ["o/*"], "n/")]
    assert [described(part) for part in made_parts(found(moves, ["o/y/b"]))] == [
        ("made", ["o/x/*"], "n/x/"),
        ("made", ["o/y/a"], "n/y/a"),
    ]
    assert [described(part) for part in made_parts(found(moves, others=["o/z"]))] == [
        ("made", ["o/x/*"], "n/x/"),
        ("made", ["o/y/a"], "n/y/a"),
    ]


def test_a_leaf_that_is_also_used_otherwise_is_no_part_of_a_subtree() -> None:
    moves = [("n/a", "o/a", "x"), ("n/b", "o/b", "x"), ("m", "o/b", "x.T")]
    assert [described(part) for part in made_parts(found(moves))] == [
        ("made", ["o/a"], "n/a"),
        ("made", ["o/b"], "n/b"),
        ("made", ["o/b"], "m"),
    ]


def test_what_stays_is_kept() -> None:
    moves = [("a/b", "a/b", "x"), ("a/c", "a/c", "x"), ("d", "d", "x"), ("e", "e", "x.T")]
    assert [described(part) for part in made_parts(found(moves))] == [
        ("kept", ["a/*"], None),
        ("kept", ["d"], None),
        ("made", ["e"], "e"),
    ]


def test_dropped_leaves() -> None:
    among = ["opt/a", "opt/b/c", "opt/b/d", "p/a", "p/b"]
    dropped = ["opt/b/d", "opt/a", "opt/b/c", "p/b"]
    assert [described(part) for part in plain_parts(Kind.DROPPED, dropped, among)] == [
        ("dropped", ["opt/*"], None),
        ("dropped", ["p/b"], None),
    ]
    assert plain_parts(Kind.FILLED, [], among) == []


def test_a_component_behind_all_that_is_below() -> None:
    keys = {f"a/{name}": f"b/{name}/value" for name in ("w/kernel", "w/bias", "norm")}
    formations = tuple(Formation(new, (old,), Value("x"), Evidence.VALUES) for old, new in keys.items())
    draft = draft_recipe(Findings(tuple(keys), tuple(keys.values()), formations))
    assert draft.document["rules"] == [{"match": "a/(?P<rest>.*)", "to": "b/${rest}/value"}]
