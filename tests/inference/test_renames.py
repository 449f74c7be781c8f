"""Models in two conventions: names decide nearly all, values decide all, and neither is ever wrong."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from ckpt_surgery import Inferred, infer
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.inference.values.reading import evaluated, node_of
from tests.inference.renames import MODELS, Renamed, renamed
from tests.inference.two_sides import side
from tests.support.slow import slow
from tests.support.trees import nested

FEW, MANY = range(24), range(1000, 1300)


def fresh(target: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The target as its program initialises it."""
    random = np.random.default_rng([99, seed])
    return {key: random.standard_normal(array.shape).astype(array.dtype) for key, array in target.items()}


def wrong(case: Renamed, inference: Inferred) -> list[str]:
    """Target leaves with wrong sources, or with a wrong layout."""
    source = side(case.source)
    mistaken = []
    for one in inference.findings.formations:
        node = node_of(one.value, [source.leaves[key] for key in one.sources])
        array = evaluated(node, Region.whole(node.spec.shape), source)
        if not np.array_equal(array, case.target[one.target]):
            mistaken.append(one.target)
    return mistaken


@pytest.mark.slow("infers from dozens of random models")
@pytest.mark.parametrize("seeds", [FEW, slow(MANY)], ids=["few", "many"])
def test_names_decide_nine_of_ten_and_are_never_wrong(seeds: range) -> None:
    cases = {seed: renamed(seed) for seed in seeds}
    inferences = {
        seed: infer(nested(case.source), nested(fresh(case.target, seed))) for seed, case in cases.items()
    }
    mistaken = {seed: wrong(cases[seed], one) for seed, one in inferences.items()}
    assert {seed: keys for seed, keys in mistaken.items() if keys and inferences[seed].decided} == {}
    assert sum(one.decided for one in inferences.values()) >= 0.9 * len(cases)


@pytest.mark.slow("infers from dozens of random models")
@pytest.mark.parametrize("values", [False, True], ids=["names", "values"])
@pytest.mark.parametrize("seeds", [range(18), slow(range(2000, 2120))], ids=["few", "many"])
def test_drafts_have_at_most_a_fifth_more_rules_than_a_person_writes(seeds: range, values: bool) -> None:
    written: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for seed in seeds:
        case = renamed(seed)
        inference = infer(nested(case.source), nested(case.target if values else fresh(case.target, seed)))
        if inference.decided:
            written[case.name].append((len(inference.draft.rules), case.rules))
    ratios = {name: sum(d for d, _ in pairs) / sum(w for _, w in pairs) for name, pairs in written.items()}
    assert all(ratio <= 1.2 for ratio in ratios.values()), ratios


def cut(case: Renamed, seed: int) -> Renamed:
    """The case where the source lacks one kind of leaf that the target has, and the target another one."""
    random = np.random.default_rng([7, seed])
    kinds = sorted({re.sub(r"\d+", "#", key) for key in case.target})
    lost, gone = (
        {key for key in case.target if re.sub(r"\d+", "#", key) == kind}
        for kind in random.choice(kinds, 2, replace=False)
    )
    left = {key for key in case.target if key not in lost}
    only = {one for key in lost for one in case.sources[key]} - {k for key in left for k in case.sources[key]}
    source = {key: array for key, array in case.source.items() if key not in only}
    return replace(case, source=source, target={k: a for k, a in case.target.items() if k not in gone})


@pytest.mark.slow("infers from dozens of random models")
@pytest.mark.parametrize("seeds", [range(24), slow(range(3000, 3120))], ids=["few", "many"])
def test_leaves_that_one_side_lacks_are_not_taken_for_others(seeds: range) -> None:
    for seed in seeds:
        case = cut(renamed(seed), seed)
        inference = infer(nested(case.source), nested(fresh(case.target, seed)))
        assert not (inference.decided and wrong(case, inference)), seed


@pytest.mark.parametrize("seed", range(len(MODELS)))
def test_values_decide_all(seed: int) -> None:
    case = renamed(seed)
    inference = infer(nested(case.source), nested(case.target))
    assert inference.decided
    assert wrong(case, inference) == []


def rename_one(**others: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two checkpoints that are called the same but for one leaf each."""
    same = {f"backbone/layer_{n}/{name}": np.ones((5 + n, 7)) for n in range(2) for name in ("w", "v")}
    (one, mine), (other, theirs) = others.items()
    return {**same, one: mine}, {**same, other: theirs}


def test_a_new_leaf_beside_names_that_stay_is_not_the_old_one() -> None:
    old, new = rename_one(projection_head=np.ones((6, 3)), predictor=np.ones((6, 3)))
    inference = infer(nested(old), nested(new), values="ignore")
    assert [one.targets for one in inference.findings.undecided] == [("predictor",)]


def test_a_square_matrix_under_its_own_key_goes_as_the_others() -> None:
    old = {"enc/kernel": np.ones((8, 12)), "mid/kernel": np.ones((12, 12)), "dec/kernel": np.ones((20, 12))}
    inference = infer(nested(old), nested({key: array.T for key, array in old.items()}), values="ignore")
    assert {one.target: str(one.value) for one in inference.findings.formations} == dict.fromkeys(old, "x.T")


@pytest.mark.parametrize("kind", ["symmetric", "identity"])
def test_a_matrix_that_is_its_transpose_goes_as_the_others(kind: str) -> None:
    random = np.random.default_rng(0)
    square = random.standard_normal((12, 12)).astype(np.float32)
    old = {
        "enc/kernel": random.standard_normal((8, 12)).astype(np.float32),
        "mid/kernel": square + square.T if kind == "symmetric" else np.eye(12, dtype=np.float32),
        "dec/kernel": random.standard_normal((20, 12)).astype(np.float32),
    }
    inference = infer(nested(old), nested({key: np.ascontiguousarray(array.T) for key, array in old.items()}))
    assert {one.target: str(one.value) for one in inference.findings.formations} == dict.fromkeys(old, "x.T")
