"""T5X's assignment maps: what the recipes made of them give, beside what T5X's documentation says."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.migration.t5x import from_t5x_assignment_map
from tests.support.checkpoints import random, restored, save_standard
from tests.support.comparing import assert_same
from tests.support.libraries import save_t5x
from tests.support.plans import plan_of
from tests.support.trees import nested

Map = Sequence[tuple[str | re.Pattern[str], str | None]]

STEP = {"state/step": ()}
DENSE: Mapping[str, tuple[int, ...]] = {
    **{f"target/encoder/layers_{i}/mlp/wi/kernel": (4, 6) for i in range(2)},
    **{f"target/encoder/layers_{i}/attention/query/kernel": (4, 4) for i in range(2)},
    "target/token_embedder/embedding": (9, 4),
    **{f"state/param_states/encoder/layers_{i}/mlp/wi/kernel/v": (4, 6) for i in range(2)},
    **{f"state/param_states/encoder/layers_{i}/attention/query/kernel/v": (4, 4) for i in range(2)},
    "state/param_states/token_embedder/embedding/v": (9, 4),
    **STEP,
}
SPARSE = {key.replace("mlp", "expert"): shape for key, shape in DENSE.items()}
LAYER = {"target/kernel": (3, 2), "target/bias": (2,), "state/param_states/kernel": (3, 2), **STEP}

DOCUMENTED: Mapping[str, tuple[Map, Mapping[str, Any], Mapping[str, Any]]] = {
    # a dense model becomes a sparse one: the test of T5X's UpcycleCheckpointer
    "upcycling": (
        ((r"(.*)expert(.*)", r"\1mlp\2"), (r"(.*)attention(.*)", r"\1attention\2")),
        DENSE,
        SPARSE,
    ),
    # the optimizer starts again, all else is restored: how T5X's users drop its state
    "no optimizer state": ([(r"state.*", None)], DENSE, DENSE),
    # a part of the model that is new
    "a new part": (
        [(r"state.*", None), (r"target/prompt_generator.*", None)],
        DENSE,
        {**DENSE, "target/prompt_generator/prompt": (2, 4)},
    ),
    # only kernels of several layers, from one: T5X's test of fallback states
    "kernels only": (
        [(r"target/layer(\d+)/kernel", r"target/kernel"), (r"target.*bias", None), (r"state.*", None)],
        LAYER,
        {
            **{
                f"target/layer{i}/{name}": LAYER[f"target/{name}"]
                for i in range(2)
                for name in ("kernel", "bias")
            },
            **{f"state/param_states/layer{i}/kernel": (3, 2) for i in range(2)},
            **STEP,
        },
    ),
    # the narrower pattern stands first
    "the first wins": (
        [(r"target/layer2/bias", r"target/other"), (r"target/layer\d/(.*)", r"target/\1")],
        {"target/kernel": (3,), "target/bias": (2,), "target/other": (2,)},
        {
            f"target/layer{i}/{name}": (2 if name == "bias" else 3,)
            for i in (1, 2)
            for name in ("kernel", "bias")
        },
    ),
    "two that change places": (
        [("target/a", "target/b"), ("target/b", "target/a")],
        {"target/a": (3,), "target/b": (3,)},
        {"target/a": (3,), "target/b": (3,)},
    ),
    "compiled, with names": (
        [(re.compile(r"TARGET/(?P<rest>.*)", re.IGNORECASE), r"\g<rest>/kept")],
        {"x$/y/kept": (2,)},
        {"target/x$/y": (2,)},
    ),
    "no entries": ([], DENSE, DENSE),
}


def original(checkpoint: Mapping[str, Any], state: Mapping[str, Any], entries: Map) -> dict[str, Any]:
    """What T5X documents: the first pattern that matches a key of the new state says where it comes from."""
    result = {}
    for key, own in state.items():
        for pattern, replacement in entries:
            match = re.fullmatch(pattern, key)
            if match:
                result[key] = own if replacement is None else checkpoint[match.expand(replacement)]
                break
        else:
            result[key] = checkpoint[key]
    return result


def values(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    return {key: np.asarray(random(shape, seed + i)) for i, (key, shape) in enumerate(shapes.items())}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_checkpoints_of_orbax(name: str, tmp_path: Path) -> None:
    entries, old, new = DOCUMENTED[name]
    checkpoint, state = values(old, 0), values(new, 100)
    save_standard(tmp_path / "old", nested(checkpoint))
    save_standard(tmp_path / "fresh", nested(state))
    recipe = from_t5x_assignment_map(entries)
    applying.apply(recipe, tmp_path / "old", dst=tmp_path / "new", target=tmp_path / "fresh")
    assert_same(restored(tmp_path / "new"), original(checkpoint, state, entries))


@pytest.mark.parametrize("name", ["upcycling", "kernels only"])
def test_a_checkpoint_of_t5x_into_a_state_in_memory(name: str, tmp_path: Path) -> None:
    import jax.numpy as jnp
    from flax import traverse_util

    entries, old, new = DOCUMENTED[name]
    checkpoint, state = values(old, 0), values(new, 100)
    path = save_t5x(checkpoint, tmp_path / "checkpoint_1")
    target = nested({key: jnp.asarray(value) for key, value in state.items()})
    fn = functools.partial(apply_assignment_map, assignment_map=entries)
    found = ckpt_surgery.restore(from_t5x_assignment_map(fn), path, target=target)
    flat = traverse_util.flatten_dict(found, sep="/")
    wanted = original(checkpoint, state, entries)
    assert_same({key: np.asarray(value) for key, value in flat.items()}, wanted)


def test_the_yaml_of_a_map() -> None:
    entries, _, _ = DOCUMENTED["kernels only"]
    assert from_t5x_assignment_map(entries).to_yaml() == (
        "version: 1\n"
        "rules:\n"
        "  - {fill: .*, when: \"kind(target[key]) == 'empty'\", fallback: true, optional: true}\n"
        r"  - {fill: target/layer(\d+)/kernel, from: target/kernel}" + "\n"
        "  - {fill: target.*bias, fallback: true}\n"
        "  - {fill: state.*, fallback: true}\n"
    )
    assert from_t5x_assignment_map([("state.*", None)], require_all_rules_match=False).to_yaml() == (
        "version: 1\nrules:\n  - {fill: state.*, fallback: true, optional: true}\n"
    )
    assert from_t5x_assignment_map([]).document == {"version": 1, "rules": []}


# --- what T5X refuses -----------------------------------------------------------------------------


def planned(entries: Map, old: Sequence[str], new: Sequence[str] | Mapping[str, str], **options: Any) -> Any:
    recipe = from_t5x_assignment_map(entries, **options)
    return plan_of(json.dumps(recipe.document), old, target=new)


def test_a_pattern_that_matches_nothing() -> None:
    entries = [("a", "b"), ("c", None), ("a", "d")]
    with pytest.raises(PlanError) as caught:
        planned(entries, ["b"], ["a"])
    said = [problem.message for problem in caught.value.problems]
    assert said == [
        "the rule claims nothing: no key of the target matches",
        "the rule claims nothing: earlier rules claimed all that it matches, 1 key",
    ]
    plan = planned(entries, ["b"], ["a"], require_all_rules_match=False)
    assert [(s.leaf.key.text, s.sources[0][1]) for s in plan.steps] == [("a", "b")]


def test_a_key_that_the_checkpoint_does_not_have() -> None:
    with pytest.raises(PlanError, match="no source leaf is called `b`"):
        planned([("a", "b")], ["c"], ["a"])
    with pytest.raises(PlanError, match="`a`"):
        planned([("state.*", None)], ["c"], ["a", "state/x"])


def test_a_leaf_of_the_key_that_the_map_fills() -> None:
    """The map decides, also where T5X would forget it: nothing else takes the checkpoint's `a`."""
    plan = planned([("a", "b")], ["a", "b"], ["a"])
    assert [(s.leaf.key.text, s.sources[0][1]) for s in plan.steps] == [("a", "b")]
    assert [d.leaf.key.text for d in plan.dropped] == ["a"]


def test_nodes_without_arrays_are_no_keys_of_a_map() -> None:
    plan = planned([("target/(.*)", r"\1")], ["w"], {"target/w": "float32[2,3]", "target/none": "empty"})
    fates = [(step.leaf.key.text, str(step.fate)) for step in plan.steps]
    assert fates == [("target/w", "renamed"), ("target/none", "defaulted")]


# --- functions ------------------------------------------------------------------------------------


def apply_assignment_map(*arguments: Any, **options: Any) -> None:
    """Stands for T5X's function, which is known by its name."""


def another_transformation(state: Any, target: Any) -> Any:
    return state


def test_a_partial_of_the_function() -> None:
    entries = [("a", "b")]
    plain = from_t5x_assignment_map(entries)
    fn = functools.partial(apply_assignment_map, assignment_map=entries)
    assert from_t5x_assignment_map(fn) == plain
    assert from_t5x_assignment_map(functools.partial(fn, is_resuming=False)) == plain
    loose = functools.partial(fn, require_all_rules_match=False)
    assert from_t5x_assignment_map(loose) == from_t5x_assignment_map(entries, require_all_rules_match=False)
    # T5X changes nothing when a run is resumed
    assert from_t5x_assignment_map(functools.partial(fn, is_resuming=True)).document == {"version": 1}
    other = functools.partial(fn, assignment_map=[("c", None)])
    assert from_t5x_assignment_map(other) == from_t5x_assignment_map([("c", None)])


REFUSED: Sequence[tuple[Any, str]] = [
    (another_transformation, "`another_transformation` is code, and only the maps of `apply_assignment_map`"),
    (functools.partial(another_transformation, state=1), "`another_transformation` is code"),
    (apply_assignment_map, "a `functools.partial` of that function with its map"),
    (functools.partial(apply_assignment_map, {}, assignment_map=[]), "`partial` is code"),
    (functools.partial(apply_assignment_map, assignment_map=[], other=1), "`apply_assignment_map` is given"),
    ([another_transformation], "Functions of T5X are given one at a time"),
    ("state.*", "an assignment map is a sequence of pairs, not str"),
    ({"a": "b"}, "an assignment map is a sequence of pairs, not dict"),
    ([("a", "b"), "ab"], "assignment_map[1] is 'ab', not a pair of a pattern and a replacement"),
    ([("a", 3)], "assignment_map[0] is ('a', 3), not a pair"),
    ([(re.compile(b"a"), "b")], "assignment_map[0] is (re.compile(b'a'), 'b'), not a pair"),
    ([("a(", "b")], "assignment_map[0]: `a(`: not a regular expression: missing ), unterminated subpattern"),
    ([("a", r"\1")], r"assignment_map[0]: `\1` is not a replacement: invalid group reference 1"),
]


@pytest.mark.parametrize(("given", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_is_refused(given: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_t5x_assignment_map(given)
    assert says in str(caught.value)
    assert len(caught.value.problems) == 1


def test_flags_of_compiled_patterns() -> None:
    for pattern, text in (
        (re.compile("a.b", re.DOTALL), "(?s)a.b"),
        (re.compile("a b  # c (", re.VERBOSE), "(?x)a b  # c ("),
        (re.compile("(?i)a"), "(?i)a"),
        (re.compile(r"\w", re.ASCII | re.MULTILINE), r"(?ma)\w"),
        (re.compile("a"), "a"),
    ):
        assert from_t5x_assignment_map([(pattern, None)]).document["rules"][0]["fill"] == text


def test_problems_name_the_entry_of_the_map() -> None:
    recipe = from_t5x_assignment_map([("a", None), ("state/(.*)", r"nope/\1")])
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.restore(recipe, {"b": np.ones(2)}, target={"a": np.ones(2), "state": {"x": np.ones(2)}})
    [place] = [problem.place for problem in caught.value.problems if problem.place is not None]
    assert (place.line, place.name) == (None, "assignment_map[1], from")
