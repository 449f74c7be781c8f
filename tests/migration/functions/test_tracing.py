"""Functions of trees as rules: which there are, what they are called, and what a recipe of them holds."""

import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.core import freeze
from flax.training.train_state import TrainState

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.live.tree import live_tree
from ckpt_surgery.migration.functions.rules import MOST_MATCHES, template_of
from ckpt_surgery.migration.functions.tracing import described, recipe_of_function, source_names
from ckpt_surgery.migration.originals import original_of_live
from tests.support.trees import nested

HERE = str(Path(__file__).name)


def rules_of(function: Any, *trees: Any) -> list[Any]:
    """The rules for a function of these trees."""
    rules: list[Any] = recipe_of_function(
        function, [original_of_live(live_tree(tree)) for tree in trees]
    ).document["rules"]
    return rules


def arrays(*names: str) -> dict[str, Any]:
    """A nested tree of arrays with these keys."""
    return nested(dict.fromkeys(names, np.ones(2, np.float32)))


# --- rules ---


def test_subtrees_that_are_moved_as_a_whole_take_one_rule() -> None:
    tree = arrays("p/enc/k", "p/enc/b", "p/head/k", "p/head/b", "q/a", "q/b", "step")
    assert rules_of(lambda t: t, tree) == [{"match": ".*"}]
    assert rules_of(lambda t: {"params": t}, tree) == [{"match": "(.*)", "to": r"params/\1"}]
    assert rules_of(lambda t: t["p"], tree) == [{"match": "p/(.*)", "to": r"\1"}]
    assert rules_of(lambda t: {**t, "p": {"new": t["p"]["enc"]}}, tree) == [
        {"match": "p/enc/(.*)", "to": r"p/new/\1"},
        {"match": "q/.*"},
        {"match": "step"},
    ]


def test_what_is_left_out_or_in_two_places_splits_its_subtree() -> None:
    def without(tree: Any) -> Any:
        del tree["p"]["b"]
        return tree

    left = [{"match": "p/a"}, {"match": "p/c/.*"}]
    assert rules_of(without, arrays("p/a", "p/b", "p/c/d", "p/c/e")) == left
    # Of two places the one with the same end moves with the subtree.
    assert rules_of(lambda t: {"a_copy": t["p"]["k"], "new": t["p"]}, arrays("p/b", "p/k")) == [
        {"match": "p/(.*)", "to": r"new/\1"},
        {"add": "a_copy", "value": "source['p/k']"},
    ]


def test_lists_and_dicts_with_numbers_are_told_apart() -> None:
    tree = {"l": [np.ones(2), np.zeros(3)], "d": {"0": np.ones(1)}}
    assert rules_of(lambda t: {"l": t["l"][::-1]}, tree) == [
        {"match": "l/0", "to": "l/[1]"},
        {"match": "l/1", "to": "l/[0]"},
    ]

    def exchanged(t: Any) -> Any:
        return {"l": {str(i): x for i, x in enumerate(t["l"])}, "d": list(t["d"].values())}

    found = ckpt_surgery.plan(exchanged, tree)
    sequences = {step.leaf.key.text: step.leaf.key.sequences for step in found.steps}
    assert sequences == {"l/0": (False, False), "l/1": (False, False), "d/0": (False, True)}


def test_more_subtrees_than_are_matched_are_looked_up() -> None:
    tree = {f"a{i}": np.ones(1) for i in range(MOST_MATCHES + 1)} | {"text": "same"}
    rules = rules_of(lambda t: {f"b{name}": value for name, value in t.items()}, tree)
    assert {tuple(rule) for rule in rules} == {("add", "value"), ("match", "to")}
    assert {"match": "text", "to": "btext"} in rules


@pytest.mark.parametrize(
    ("names", "template"),
    [
        (("a", "b"), "a/b"),
        ((r"a\1", "$x"), r"a\\1/$$x"),
        (("a/b", "[0]"), r"a\/b/${'[0]'}"),
        (("x[0]", "{y}"), "x[0]/{y}"),
    ],
)
def test_templates_stand_for_the_keys_that_they_are_made_of(names: tuple[str, ...], template: str) -> None:
    assert template_of(Key.of(names)) == template
    tree: Any = {"w": np.ones(2, np.float32)}

    def move(t: Any) -> Any:
        return functools.reduce(lambda inner, name: {name: inner}, reversed(names), t["w"])

    assert rules_of(move, tree)[0]["to"] == template
    assert [step.leaf.key.names for step in ckpt_surgery.plan(move, tree).steps] == [names]


# --- trees of libraries ---


def test_a_train_state_stays_one() -> None:
    params = {"d": {"kernel": np.ones((2, 3), np.float32)}}
    state = TrainState.create(apply_fn=len, params=params, tx=optax.adam(1e-3))
    found = ckpt_surgery.restore(lambda s: s.replace(params={"new": s.params["d"]}), state)
    assert isinstance(found, TrainState)
    assert found.params.keys() == {"new"}
    assert found.opt_state[1] == optax.EmptyState()
    assert isinstance(found.opt_state[0], type(state.opt_state[0]))
    assert isinstance(ckpt_surgery.restore(lambda t: t, freeze(params)), type(freeze(params)))


def test_random_keys_can_be_moved_to_several_places_and_not_computed_with() -> None:
    tree = {"rng": jax.random.key(3), "a": np.ones(2, np.float32)}
    found = ckpt_surgery.restore(lambda t: {"r": t["rng"], "s": {"t": t["rng"]}, "a": t["a"]}, tree)
    for key in (found["r"], found["s"]["t"]):
        np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(tree["rng"]))
    with pytest.raises(PlanError, match="`rng` is a typed PRNG key"):
        ckpt_surgery.restore(lambda t: {"r": t["rng"] + 1}, tree)


def test_random_keys_of_the_functions_own_are_refused_with_its_line() -> None:
    tree = {"rng": jax.random.key(3), "a": np.ones(2, np.float32)}
    with pytest.raises(
        UsageError, match=f"{HERE}:\\d+.*a typed PRNG key at `r`, which it has made"
    ) as caught:
        ckpt_surgery.restore(lambda t: {"r": jax.random.key(1), "a": t["a"]}, tree)
    assert "jax.random.key_data(key)" in str(caught.value)
    with pytest.raises(UsageError, match=r"function of JAX .* with `rng` \(.*test_tracing.py:\d+\)"):
        ckpt_surgery.restore(lambda t: {"r": jax.random.split(t["rng"])}, tree)
    found = ckpt_surgery.restore(lambda t: {"r": jax.random.key_data(jax.random.key(1)), "a": t["a"]}, tree)
    np.testing.assert_array_equal(found["r"], jax.random.key_data(jax.random.key(1)))


@pytest.mark.parametrize("key", [str, int])
@pytest.mark.parametrize("computed", [False, True])
def test_dicts_with_numbers_as_keys_in_place_of_a_list_have_no_text(
    key: Callable[[int], Any], computed: bool, tmp_path: Path
) -> None:
    ones = np.ones(2, np.float32)
    tree = {"layers": [ones, 2 * ones], "w": 3 * ones}

    def renumbered(t: Any) -> Any:
        return {"layers": {key(i): x + 1 if computed else x for i, x in enumerate(t["layers"])}, "w": t["w"]}

    found = ckpt_surgery.restore(renumbered, tree)
    assert found["layers"].keys() == {key(0), key(1)}
    recipe = ckpt_surgery.from_function(renumbered, tree)
    with pytest.raises(UsageError, match=f"{HERE}:\\d+.* numbers as keys, such as `layers/0`"):
        recipe.to_yaml()
    ocp.PyTreeCheckpointer().save(tmp_path / "in", tree)
    with pytest.raises(UsageError, match="numbers as keys"):
        ckpt_surgery.plan(renumbered, tmp_path / "in", dst=tmp_path / "dst", out=tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=tmp_path / "dst")
    assert list(ckpt_surgery.open(tmp_path / "dst").tree["layers"]) == ["0", "1"]


def test_lists_that_stay_lists_and_other_dicts_have_a_text() -> None:
    ones = np.ones(2, np.float32)
    tree = {"layers": [ones, 2 * ones]}

    def several(t: Any) -> Any:
        return {"layers": t["layers"][::-1], "by": {str(i): x for i, x in enumerate(t["layers"])}}

    found = ckpt_surgery.restore(ckpt_surgery.from_function(several, tree).to_yaml(), tree)
    jax.tree.map(np.testing.assert_array_equal, found, several(tree))


def test_texts_and_empty_nodes_can_be_in_several_places() -> None:
    tree = {"t": "same", "e": {}, "n": None, "w": np.ones(2, np.float32)}

    def several(t: Any) -> Any:
        return {"t": t["t"], "u": t["t"], "d": t["e"], "f": t["e"], "n": t["n"], "m": t["n"], "w": t["w"]}

    found = ckpt_surgery.restore(several, tree)
    assert {**found, "w": None} == {**several(tree), "w": None}
    fates = {s.leaf.key.text: s.fate.value for s in ckpt_surgery.plan(several, tree).steps}
    assert (fates["t"], fates["u"], fates["n"], fates["m"]) == ("kept", "added", "kept", "added")
    assert sorted([fates["d"], fates["f"]]) == ["added", "renamed"]


def test_arrays_of_uint16_that_are_bfloat16_are_such_for_the_function() -> None:
    tree = {"w": np.arange(4, dtype=np.uint16)}

    def like(t: Any) -> Any:
        return {"w": t["w"], "zeros": np.zeros(2, t["w"].dtype)}

    found = ckpt_surgery.restore(like, tree, uint16="bfloat16")
    assert (found["w"].dtype.name, found["zeros"].dtype.name) == ("bfloat16", "bfloat16")
    assert np.asarray(found["w"]).tobytes() == tree["w"].tobytes()


# --- the function, and the recipe ---


class Called:
    def __call__(self, tree: Any) -> Any:
        return tree


def named(tree: Any) -> Any:
    return tree


@pytest.mark.parametrize(
    ("function", "name"),
    [(named, "named"), (functools.partial(named), "named"), (Called(), "Called"), (lambda t: t, "<lambda>")],
)
def test_a_function_is_called_by_its_name_and_line(function: Any, name: str) -> None:
    about = described(function)
    assert about.name == f"`{name}`"
    assert Path(about.place.rpartition(":")[0]).name == HERE
    assert about.label == f"`{name}` ({about.place})"


def test_a_function_without_a_file_is_called_by_its_name() -> None:
    assert described(dict).label == "`dict`"
    assert ckpt_surgery.restore(dict, {"a": 3}) == {"a": 3}


def test_sources_are_called_like_the_arguments_where_recipes_take_their_names() -> None:
    def fuse(image: Any, text: Any) -> Any: ...
    def short(x: Any, text: Any) -> Any: ...
    def many(*trees: Any) -> Any: ...

    assert source_names(named, "", 1) == ["source"]
    assert source_names(fuse, "", 2) == ["image", "text"]
    assert source_names(short, "", 2) == source_names(many, "", 2) == ["source_1", "source_2"]


def test_arrays_of_jax_in_a_tree_are_promoted_as_jax_does() -> None:
    def scaled(tree: Any) -> Any:
        return {"b": tree["b"] * 0.1, "i": tree["i"] / 2, "mean": tree["i"].mean()}

    on_devices = {"b": jnp.arange(6, dtype=jnp.bfloat16), "i": jnp.arange(3)}
    in_memory = jax.tree.map(np.asarray, on_devices)
    for tree in (on_devices, in_memory):
        found, wanted = ckpt_surgery.restore(scaled, tree), scaled(tree)
        for key, array in wanted.items():
            assert found[key].dtype == array.dtype
            assert np.array_equal(found[key], array)


def test_recipes_of_two_sources_name_them_in_yaml() -> None:
    def fuse(image: Any, text: Any) -> Any:
        return {"image": image, "text": text["a"], "sum": image["a"] + text["a"]}

    one, other = arrays("a", "b"), arrays("a", "b")
    recipe = ckpt_surgery.from_function(fuse, one, other)
    assert recipe.to_yaml() == (
        "version: 1\n"
        "sources: [image, text]\n"
        "unmatched: drop\n"
        "target: {missing: fallback}\n"
        "rules:\n"
        "  - {match: (.*), to: image/\\1}\n"
        "  - {match: a, to: text, source: text}\n"
        "  - {add: sum, value: \"image['a'] + text['a']\"}\n"
    )
    found = ckpt_surgery.restore(recipe.to_yaml(), one, other)
    np.testing.assert_array_equal(found["sum"], 2 * np.ones(2, np.float32))


def test_a_recipe_of_a_function_goes_to_other_processes_without_the_tree() -> None:
    recipe = ckpt_surgery.from_function(named, arrays("a", "b"))
    loaded = ckpt_surgery.read_recipe(recipe)
    assert loaded.function is not None
    assert pickle.loads(pickle.dumps(loaded.function)) == loaded.function


def test_recipes_of_any_size_are_read() -> None:
    tree = {f"{'long' * 225}_{i}": np.ones(1, np.float32) for i in range(700)}
    recipe = ckpt_surgery.from_function(lambda t: {f"new_{n}": x for n, x in t.items()}, tree)
    assert sum(map(len, (rule["value"] for rule in recipe.document["rules"]))) > 600_000
    assert len(ckpt_surgery.read_recipe(recipe).recipe.passes[0].rules) == 700


def test_many_leaves_can_be_stacked_until_the_expression_is_too_long() -> None:
    def layers(count: int) -> Any:
        return {f"decoder_layer_{i}": {"attention": {"kernel": np.full(2, i)}} for i in range(count)}

    def stack(t: Any) -> Any:
        return {"kernel": np.stack([t[f"decoder_layer_{i}"]["attention"]["kernel"] for i in range(len(t))])}

    tree = layers(200)
    np.testing.assert_array_equal(ckpt_surgery.restore(stack, tree)["kernel"], stack(tree)["kernel"])
    with pytest.raises(UsageError, match="`kernel`"):
        ckpt_surgery.plan(stack, layers(2000))


def test_functions_of_jax_in_closures_are_recorded_and_put_back() -> None:
    from jax.numpy import concatenate

    def twice(x: Any) -> Any:
        return concatenate([x, x])

    def function(tree: Any) -> Any:
        return {"b": twice(tree["a"])}

    recipe = ckpt_surgery.from_function(function, {"a": np.ones((2, 3), np.float32)})
    assert "concat([source['a'], source['a']], axis=0)" in recipe.to_yaml()
    assert twice(np.ones(1)).shape == (2,)
    assert concatenate.__module__.startswith("jax")


def test_what_a_function_assigns_to_a_closure_stays() -> None:
    join: Any = jnp.concatenate

    def function(tree: Any) -> Any:
        nonlocal join
        result = join([tree["a"], tree["a"]])
        join = None
        return {"b": result}

    ckpt_surgery.from_function(function, {"a": np.ones((2, 3), np.float32)})
    assert join is None
