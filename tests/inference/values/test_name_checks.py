"""Values confirm or refute matches by names; constant leaves follow others of their family."""

import numpy as np

from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    Evidence,
    Formation,
    Proposal,
    Undecided,
    Value,
    X,
)
from ckpt_surgery.inference.values.name_checks import (
    DIFFERENT,
    check_names_by_values,
    constants_of_families,
    same_constant,
)
from ckpt_surgery.inference.values.reading import Side
from tests.inference.two_sides import Arrays, computed, normal, side, sides
from tests.support.comparing import same

A, B = normal(4, 6), normal(4, 6, seed=1)


def named(target: str, *sources: str, value: Value = X) -> Formation:
    return Formation(target, sources, value, Evidence.ONLY_LAYOUT)


def check(
    source: Arrays,
    target: Arrays,
    *said: Formation,
    open_ones: tuple[Undecided, ...] = (),
    shared: bool = True,
) -> Proposal:
    return check_names_by_values(Proposal(said, open_ones), *sides(source, target), shared, {})


def said(proposal: Proposal, source: Arrays, target: Arrays) -> dict[str, str]:
    """The expressions, which have to give the target."""
    for one in proposal.formations:
        if one.evidence == Evidence.ARITHMETIC:
            leaves = {str(i): source[key] for i, key in enumerate(one.sources)}
            assert same(computed(one.value, leaves), target[one.target])
    return {one.target: str(one.value) for one in proposal.formations}


def test_without_values_names_decide() -> None:
    source, target = sides({"a": A}, {"b": B})
    known = Proposal((named("b", "a"),), (Undecided(("c",), "why"),))
    bare = Side(target.leaves)
    assert check_names_by_values(known, source, bare, True, {}) == Proposal(known.formations, known.undecided)


def test_values_after_arithmetic() -> None:
    source, target = {"a": A}, {"b": (A + np.float32(1)).T.copy()}
    proposal = check(source, target, named("b", "a"))
    assert said(proposal, source, target) == {"b": "x.T + 1.0"}
    assert proposal.formations[0].evidence == Evidence.ARITHMETIC


def test_arithmetic_without_a_layout() -> None:
    source, target = {"a": A}, {"b": A * np.float32(2)}
    assert said(check(source, target, named("b", "a")), source, target) == {"b": "x * 2.0"}


def test_arithmetic_of_a_stack() -> None:
    source = {"l/0": A, "l/1": B}
    target = {"s": np.stack([A, B], 1) * np.float32(8**-0.5)}
    proposal = check(source, target, named("s", "l/0", "l/1", value=Value("stack(xs, axis=1)")))
    assert set(said(proposal, source, target)) == {"s"}


def test_arithmetic_of_the_members_of_a_stack() -> None:
    source = {"s": np.stack([A, B])}
    target = {"l/0": A * np.float32(3), "l/1": B * np.float32(3)}
    proposal = check(source, target, named("l/0", "s"), named("l/1", "s"))
    assert said(proposal, source, target) == {"l/0": "x[0] * 3.0", "l/1": "x[1] * 3.0"}


def test_arithmetic_and_a_cast() -> None:
    source, target = {"a": A}, {"b": (A * np.float32(4)).astype(np.float16)}
    assert said(check(source, target, named("b", "a")), source, target) == {"b": "cast(x * 4.0, 'float16')"}


def test_other_numbers_need_a_decision_where_values_are_shared() -> None:
    proposal = check({"a": A}, {"b": B}, named("b", "a"))
    assert proposal.formations == ()
    assert proposal.undecided == (Undecided(("b",), DIFFERENT, (Candidate(("a",), "x", 1.0, "same"),)),)


def test_a_fresh_target_goes_by_names() -> None:
    proposal = check({"a": A}, {"b": B}, named("b", "a"), shared=False)
    assert (proposal.formations, proposal.undecided) == ((named("b", "a"),), ())


def test_a_fresh_target_with_rows_of_the_source_needs_a_decision() -> None:
    changed = A.copy()
    changed[1] = 7
    proposal = check({"a": A}, {"b": changed}, named("b", "a"), shared=False)
    assert (proposal.formations, [one.targets for one in proposal.undecided]) == ((), [("b",)])


def test_constants_that_are_equal_go_by_names() -> None:
    ones = np.ones((2, 3), np.float32)
    turned = named("b", "a", value=Value("x.T"))
    assert check({"a": ones}, {"b": ones.T.copy()}, turned).formations == (turned,)
    assert check({"a": ones}, {"b": ones * 2}, named("b", "a")).formations == ()


def test_what_has_no_values_goes_by_names_if_it_is_equal() -> None:
    known = Proposal((named("t", "s"), named("f", "e")), ())
    source = side({}, {"s": "string", "e": "empty"})
    target = side({}, {"t": "string", "f": "empty"})
    assert check_names_by_values(known, source, target, True, {}).formations == known.formations
    other = side({}, {"t": "empty", "f": "empty"})
    assert [one.target for one in check_names_by_values(known, source, other, True, {}).formations] == ["f"]


def test_integers_have_no_arithmetic() -> None:
    numbers = np.arange(12).reshape(3, 4)
    proposal = check({"a": numbers}, {"b": numbers + 1}, named("b", "a"))
    assert (proposal.formations, len(proposal.undecided)) == ((), 1)


def unclear(targets: str, how: str, *candidates: str, value: str = "x") -> Undecided:
    known = []
    for sources in (tuple(keys.split()) for keys in candidates):
        formations = [Formation(key, sources, Value(value), Evidence.HINT) for key in targets.split()]
        known.append(Candidate(sources, value, 0.5, how, (formations.copy,)))
    return Undecided(tuple(targets.split()), "several fit", tuple(known))


def test_values_decide_between_candidates() -> None:
    source, target = {"a": A, "b": B}, {"t": B + np.float32(1)}
    proposal = check(source, target, open_ones=(unclear("t", "same", "a", "b"),))
    assert said(proposal, source, target) == {"t": "x + 1.0"}
    assert [one.sources for one in proposal.formations] == [("b",)]
    assert proposal.undecided == ()


def test_values_decide_a_stack_and_its_members() -> None:
    source, target = {"a": A, "b": B}, {"t": np.stack([A, B]) * np.float32(2)}
    proposal = check(source, target, open_ones=(unclear("t", "stack", "a b"),))
    assert said(proposal, source, target) == {"t": "stack(xs) * 2.0"}
    proposal = check(target, source, open_ones=(unclear("a b", "unstack", "t"),))
    assert set(said(proposal, target, source)) == {"a", "b"}


def test_any_order_of_constants_is_right() -> None:
    ones = np.ones((4, 4), np.float32)
    proposal = check({"a": ones}, {"t": ones}, open_ones=(unclear("t", "same", "a", value="x.T"),))
    assert [(str(one.value), one.why) for one in proposal.formations] == [
        ("x.T", "all elements are equal, so any order gives the same")
    ]


def test_what_no_candidate_gives_stays_open() -> None:
    one = unclear("t", "same", "a")
    assert check({"a": A}, {"t": B}, open_ones=(one,)) == Proposal((), (one,))


ONES = np.ones((2, 3), np.float32)


def decided(source: Arrays, target: Arrays, *known: Formation) -> dict[str, tuple[tuple[str, ...], str]]:
    formations = constants_of_families(*sides(source, target), {one.target: one for one in known})
    return {one.target: (one.sources, str(one.value)) for one in formations}


def known_formation(target: str, *sources: str, value: Value = X) -> Formation:
    return Formation(target, sources, value, Evidence.VALUES)


def test_they_follow_a_member_of_their_family() -> None:
    source = {"a/0": normal(2, 3), "a/1": ONES, "a/2": ONES * 2, "b/0": normal(2, 3), "b/1": ONES}
    target = {"new/0": source["a/0"].T.copy(), "new/1": ONES.T.copy(), "new/2": ONES.T * 2}
    formations = decided(source, target, known_formation("new/0", "a/0", value=Value("x.T")))
    assert formations == {"new/1": (("a/1",), "x.T"), "new/2": (("a/2",), "x.T")}


def test_all_sources_have_the_same_value() -> None:
    source = {"a/0": normal(3), "a/1": np.ones(3, "f4"), "b/0": normal(3, seed=1), "b/1": np.zeros(3, "f4")}
    target = {"c/0": np.concatenate([source["a/0"], source["b/0"]]), "c/1": np.ones(6, "f4")}
    known = known_formation("c/0", "a/0", "b/0", value=Value("concat(xs)"))
    assert decided(source, target, known) == {}
    assert decided({**source, "b/1": source["a/1"]}, target, known) == {"c/1": (("a/1", "b/1"), "concat(xs)")}


def test_other_values_or_sources_are_not_taken() -> None:
    known = known_formation("n/0", "a/0")
    first = normal(2, 3)
    assert decided({"a/0": first, "a/1": ONES}, {"n/0": first, "n/1": ONES * 2}, known) == {}
    assert decided({"a/0": first, "a/2": ONES}, {"n/0": first, "n/1": ONES}, known) == {}
    assert decided({"a/0": first, "a/1": ONES}, {"n/0": first, "n/1": first}, known) == {}


def test_leaves_of_other_shapes_and_dtypes_are_not_taken() -> None:
    """`pad(x, axis=0, to=4)` is right for the first member only: the second is as long as it was."""
    source = {"a/0": normal(2, 3), "a/1": ONES, "a/2": np.ones((4, 3), np.float32)}
    padded = np.concatenate([source["a/0"], np.zeros((2, 3), np.float32)])
    target = {"n/0": padded, "n/1": ONES, "n/2": np.ones((4, 3), np.float32)}
    assert "n/1" not in decided(
        source, target, known_formation("n/0", "a/0", value=Value("pad(x, axis=0, to=4)"))
    )
    source = {"a/0": normal(3), "a/1": np.ones(3, np.float32)}
    target = {"n/0": source["a/0"], "n/1": np.ones(3, np.float16)}
    assert decided(source, target, known_formation("n/0", "a/0")) == {}


def test_members_with_other_indices_decide_nothing() -> None:
    source = {"a/0": normal(3), "a/1": normal(3, seed=1), "a/2": np.ones(3, "f4")}
    target = {"n/0": source["a/1"], "n/1": source["a/0"], "n/2": np.ones(3, "f4")}
    assert decided(source, target, known_formation("n/0", "a/1"), known_formation("n/1", "a/0")) == {}


def test_what_is_decided_stays() -> None:
    source = {"a/0": normal(3), "a/1": np.ones(3, "f4")}
    target = {"n/0": source["a/0"], "n/1": source["a/1"]}
    assert decided(source, target, known_formation("n/0", "a/0"), known_formation("n/1", "a/1")) == {}


def test_the_same_constant() -> None:
    source = side({"one": ONES, "two": ONES * 2, "any": normal(2, 3), "whole": ONES.astype("i4")})
    target = side({"one": ONES.T, "any": normal(2, 3)}, {"text": "string"})
    assert same_constant(source, ("one",), target, "one")
    assert same_constant(source, ("one", "one"), target, "one")
    for keys, key in [(("two",), "one"), (("one", "two"), "one"), (("any",), "any"), (("whole",), "one")]:
        assert not same_constant(source, keys, target, key)
    assert not same_constant(source, ("one",), target, "text")
