"""Functions of trees as recipes: what becomes of leaves, what the target gives, and what is refused."""

import functools
import operator
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.core.errors import Code, DataError, PlanError, SourceError, UsageError

BFLOAT16 = jnp.bfloat16
HERE = Path(__file__).name


def model_tree() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "params": {
            "encoder": {
                "kernel": rng.normal(size=(4, 6)).astype(np.float32),
                "bias": rng.normal(size=6).astype(BFLOAT16),
            },
            "layers": [{"w": rng.normal(size=(3, 2)).astype(np.float32)} for _ in range(3)],
            "head": {"kernel": rng.normal(size=(6, 5)).astype(np.float16)},
        },
        "step": np.array(7),
        "name": "old",
        "state": {},
        "nothing": None,
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions") / "saved"
    ocp.PyTreeCheckpointer().save(path, model_tree())
    return path


def loaded(path: Path) -> Any:
    """What Orbax restores, with NumPy's arrays."""
    return ocp.PyTreeCheckpointer().restore(path)


def assert_same(found: Any, wanted: Any) -> None:
    """Structure, dtypes and bits are the same."""
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(wanted))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if isinstance(other, str):
            assert one == other
            continue
        one, other = np.asarray(one), np.asarray(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.tobytes() == other.tobytes()


def restructure(tree: Any) -> Any:
    """Moves, drops, copies, computes and adds, in place."""
    params = tree["params"]
    params["backbone"] = params.pop("encoder")
    params["tied"] = params["backbone"]["kernel"]
    del params["head"]
    params["stack"] = np.stack([layer["w"] for layer in params.pop("layers")])
    params["backbone"]["bias"] = params["backbone"]["bias"] * 2
    params["scale"] = np.full((3,), 0.5, np.float16)
    tree["title"] = tree.pop("name")
    tree["step"] = tree["step"] + 1
    return tree


# --- what becomes of each leaf ---


def test_a_result_has_the_bits_that_the_function_gives_and_its_plan_says_what_became_of_each_leaf(
    saved: Path, tmp_path: Path
) -> None:
    wanted = restructure(loaded(saved))
    assert_same(ckpt_surgery.restore(restructure, saved), wanted)
    plan = ckpt_surgery.apply(restructure, saved, dst=tmp_path / "new").plan
    assert_same(loaded(tmp_path / "new"), wanted)
    fates = {step.leaf.key.text: (step.fate.value, [key for _, key in step.sources]) for step in plan.steps}
    assert fates == {
        "params/backbone/kernel": ("renamed", ["params/encoder/kernel"]),
        "params/backbone/bias": ("transformed", ["params/encoder/bias"]),
        "params/tied": ("renamed", ["params/encoder/kernel"]),
        "params/stack": ("transformed", [f"params/layers/{n}/w" for n in range(3)]),
        "params/scale": ("added", []),
        "title": ("renamed", ["name"]),
        "step": ("transformed", ["step"]),
        "state": ("kept", ["state"]),
        "nothing": ("kept", ["nothing"]),
    }
    assert [(gone.leaf.key.text, gone.why) for gone in plan.dropped] == [
        ("params/head/kernel", "not returned")
    ]
    assert re.fullmatch(rf"`restructure` \(.*{HERE}:\d+\)", plan.recipe)
    assert {str(step.rule) for step in plan.steps} == {"`restructure`"}
    assert "`restructure`" in plan.html()


def test_a_moved_leaf_is_renamed_and_links_every_byte(saved: Path, tmp_path: Path) -> None:
    def move(tree: Any) -> Any:
        return {"model": tree["params"], "at": {"step": tree["step"]}, "name": tree["name"]}

    plan = ckpt_surgery.apply(move, saved, dst=tmp_path / "new").plan
    fates = {step.leaf.key.text: step.fate.value for step in plan.steps}
    assert fates.pop("name") == "kept"
    assert set(fates.values()) == {"renamed"}
    assert plan.costs.bytes_linked == plan.costs.bytes_out > 0
    assert plan.costs.bytes_read == 0
    assert_same(loaded(tmp_path / "new"), move(loaded(saved)))


def test_the_function_is_called_once_with_containers_of_its_own(saved: Path) -> None:
    given = model_tree()
    calls: list[Any] = []

    def change(tree: Any) -> Any:
        calls.append(tree)
        tree["params"].clear()
        tree["state"]["filled"] = tree["step"]
        tree["nothing"] = tree["params"]
        return tree

    for source in (given, saved):
        found = ckpt_surgery.restore(change, source)
        assert (found["params"], found["nothing"], int(found["state"]["filled"])) == ({}, {}, 7)
    assert len(calls) == 2
    assert_same(given, model_tree())


def test_what_is_in_its_place_stays_where_two_leaves_change_places(tmp_path: Path) -> None:
    save_file({n: np.full(2, i, np.float32) for i, n in enumerate("abc")}, tmp_path / "m.safetensors")
    swap = lambda tree: {"a": tree["b"], "b": tree["a"], "c": tree["c"], "d": tree["c"]}  # noqa: E731
    plan = ckpt_surgery.apply(swap, tmp_path / "m.safetensors", dst=tmp_path / "n.safetensors").plan
    assert [step.fate.value for step in plan.steps] == ["renamed", "renamed", "kept", "renamed"]
    found = load_file(tmp_path / "n.safetensors")
    assert {name: int(value[0]) for name, value in found.items()} == {"a": 1, "b": 0, "c": 2, "d": 2}


def test_literals_keep_their_bits(saved: Path, tmp_path: Path) -> None:
    signalling = np.array([0x7F800001, 0xFFC00000, 0x80000000, 1], np.uint32).view(np.float32)
    arrays = {
        "nan": signalling,
        "half": jnp.asarray([1.5, -0.0], BFLOAT16),
        "large": np.arange(40, dtype=np.int16).reshape(4, 10),
        "big": np.array([2**64 - 1], np.uint64),
        "flag": np.array(True),
    }
    others = {"n": 3, "f": -2.5, "inf": np.inf, "text": "new", "none": None, "dict": {}, "list": []}
    given = arrays | others
    plan = ckpt_surgery.apply(lambda tree: {**given, "step": tree["step"]}, saved, dst=tmp_path / "new").plan
    added = {s.leaf.key.text for s in plan.steps if s.fate.value == "added" and not s.sources}
    assert added == given.keys()
    found = loaded(tmp_path / "new")
    assert {name: found[name] for name in others} == others
    assert_same({name: found[name] for name in arrays}, arrays)
    given = {"empty": np.zeros((0, 3), np.float16), "text": "new", "none": None, "list": [], "flag": True}
    assert_same(ckpt_surgery.restore(lambda tree: given, {"a": np.ones(2)}), given)


# --- several sources ---


def test_a_function_takes_one_tree_for_each_source(saved: Path, tmp_path: Path) -> None:
    save_file({"w": np.arange(6, dtype=np.float32), "v": np.ones(2, np.float32)}, tmp_path / "b.safetensors")

    def fuse(tree: Any, text: Any) -> Any:
        return {
            "a": tree["params"]["encoder"],
            "b": text["w"],
            "sum": tree["params"]["encoder"]["kernel"] + text["w"],
        }

    found = ckpt_surgery.restore(fuse, saved, tmp_path / "b.safetensors")
    assert_same(found, fuse(loaded(saved), load_file(tmp_path / "b.safetensors")))
    plan = ckpt_surgery.plan(fuse, saved, tmp_path / "b.safetensors")
    sources = {step.leaf.key.text: step.sources for step in plan.steps}
    assert sources["b"] == (("text", "w"),)
    assert ("text", "v") in {(gone.source, gone.leaf.key.text) for gone in plan.dropped}


# --- the target ---


def head(tree: Any) -> Any:
    return {"head": tree["params"]["head"]}


def test_without_a_value_in_the_target_all_such_keys_are_named(saved: Path) -> None:
    kernel, other = (jax.ShapeDtypeStruct(shape, np.float16) for shape in ((6, 5), (2,)))
    target = {"head": {"kernel": kernel}, "x": other, "y": other}
    with pytest.raises(PlanError, match=rf"`head` \(.*{HERE}:\d+\).*`x`, `y`") as caught:
        ckpt_surgery.restore(head, saved, target=target)
    assert caught.value.problems[0].code is Code.TARGET_MISSING


def test_an_ellipsis_asks_for_the_value_of_the_target(saved: Path) -> None:
    target = {"head": {"kernel": jnp.ones((6, 5), jnp.float16)}, "step": 3}
    found = ckpt_surgery.restore(lambda t: {"head": {"kernel": ...}, "step": t["step"]}, saved, target=target)
    assert_same(found, {**target, "step": 7})
    with pytest.raises(PlanError, match="needs a target"):
        ckpt_surgery.restore(lambda t: {"head": ..., "step": t["step"]}, saved)


def test_a_leaf_of_another_shape_is_refused_at_the_function(saved: Path) -> None:
    with pytest.raises(PlanError, match="shape") as caught:
        ckpt_surgery.restore(head, saved, target={"head": {"kernel": jnp.zeros((5, 6), jnp.float16)}})
    place = caught.value.problems[0].place
    assert place is not None
    assert (place.name, Path(place.file).name) == ("`head`", f"{HERE}:{head.__code__.co_firstlineno}")


# --- functions that are called when leaves are made ---


@pytest.mark.parametrize("wrong", [lambda x: x[:1], lambda x: x.astype(np.float64)])
def test_another_result_of_an_opaque_function_is_an_error_of_the_data(saved: Path, wrong: Any) -> None:
    def change(tree: Any) -> Any:
        return {"new": ckpt_surgery.opaque(wrong)(tree["params"]["encoder"]["kernel"])}

    with pytest.raises(DataError, match="`new`") as caught:
        ckpt_surgery.restore(change, saved)
    assert "opaque" in str(caught.value)


def test_a_plan_with_functions_of_the_program_cannot_be_saved(saved: Path, tmp_path: Path) -> None:
    sort = ckpt_surgery.opaque(np.sort)
    with pytest.raises(UsageError):
        ckpt_surgery.plan(lambda t: {"w": sort(t["step"])}, saved, out=tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()
    ckpt_surgery.plan(lambda t: {"w": t["step"] + 1}, saved, out=tmp_path / "plan.json")
    ckpt_surgery.apply(tmp_path / "plan.json", dst=tmp_path / "new")
    assert loaded(tmp_path / "new")["w"] == 8


# --- what is refused ---


def test_an_exception_of_the_function_passes_on_unchanged(saved: Path, tmp_path: Path) -> None:
    error = RuntimeError("mine")

    def fail(tree: Any) -> Any:
        raise error

    calls: list[Any] = [
        lambda: ckpt_surgery.restore(fail, saved),
        lambda: ckpt_surgery.plan(fail, saved),
        lambda: ckpt_surgery.apply(fail, saved, dst=tmp_path / "new"),
        lambda: ckpt_surgery.from_function(fail, saved),
    ]
    for call in calls:
        with pytest.raises(RuntimeError) as caught:
            call()
        assert caught.value is error
    assert not (tmp_path / "new").exists()
    with pytest.raises(KeyError, match="misspelt"):
        ckpt_surgery.restore(lambda tree: tree["misspelt"], saved)


@pytest.mark.parametrize("value", [None, 3, "text", object()])
def test_a_function_has_to_return_a_tree(saved: Path, value: Any) -> None:
    def give(tree: Any) -> Any:
        return value

    with pytest.raises(UsageError, match=rf"`give` \(.*{HERE}:\d+\) returns"):
        ckpt_surgery.restore(give, saved)
    with pytest.raises(UsageError, match="not a tree"):
        ckpt_surgery.restore(operator.itemgetter("step"), saved)


def test_objects_that_are_no_leaves_are_refused_with_all_keys(saved: Path) -> None:
    with pytest.raises(UsageError) as caught:
        ckpt_surgery.restore(lambda t: {"a": object(), "b": {"c": {1, 2}}, "d": t["step"]}, saved)
    assert re.findall(r"at `(.*?)`", str(caught.value)) == ["a", "b/c"]


def test_a_source_that_changes_while_the_function_is_traced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": np.ones(2, np.float32)}, path)

    def change(tree: Any) -> Any:
        save_file({"a": np.ones(3, np.float32)}, path)
        return {"b": tree["a"]}

    with pytest.raises(SourceError, match="changed"):
        ckpt_surgery.restore(change, path)


# --- the same under other names ---


def test_from_function_gives_a_recipe_that_can_be_written(saved: Path, tmp_path: Path) -> None:
    def change(tree: Any) -> Any:
        params = tree["params"]
        return {
            "model": {"backbone": params["encoder"], "layers": params["layers"]},
            "scaled": params["head"]["kernel"][:, :2] * 3,
            "scale": np.array([1.5, np.inf], np.float32),
            "step": tree["step"],
            "state": tree["state"],
        }

    recipe = ckpt_surgery.from_function(change, saved)
    text = recipe.to_yaml()
    assert recipe.document["rules"][:2] == [
        {"match": "params/encoder/(.*)", "to": r"model/backbone/\1"},
        {"match": "params/layers/(.*)", "to": r"model/layers/\1"},
    ]
    (tmp_path / "recipe.yaml").write_text(text)
    for given in (recipe, text, tmp_path / "recipe.yaml"):
        assert_same(ckpt_surgery.restore(given, saved), change(loaded(saved)))


def test_what_yaml_cannot_say_is_refused_with_the_keys(saved: Path) -> None:
    sort = ckpt_surgery.opaque(np.sort)

    def change(tree: Any) -> Any:
        return {
            "most": np.arange(16),
            "more": [tree["step"], np.arange(17)],
            "text": "new",
            "sum": tree["params"]["layers"][0]["w"] + np.ones((3, 2), np.float32),
            "sorted": sort(tree["params"]["encoder"]["kernel"]),
        }

    with pytest.raises(UsageError) as caught:
        ckpt_surgery.from_function(change, saved).to_yaml()
    (problem,) = caught.value.problems
    assert re.findall("`(.*?)`", problem.message) == ["more/[1]", "sorted", "text"]


def test_load_and_transform_takes_both_orders(saved: Path, tmp_path: Path) -> None:
    save_file({"w": np.arange(3, dtype=np.float32)}, tmp_path / "b.safetensors")
    target = {"head": {"kernel": jnp.zeros((6, 5), jnp.float16)}, "fusion": jnp.arange(3.0)}
    wanted = {"head": loaded(saved)["params"]["head"], "fusion": target["fusion"]}
    assert_same(ckpt_surgery.load_and_transform(saved, head, target), wanted)
    assert_same(ckpt_surgery.load_and_transform(saved, head, target=target), wanted)
    assert_same(ckpt_surgery.load_and_transform(saved, head), {"head": wanted["head"]})

    def fuse(one: Any, other: Any) -> Any:
        return {**head(one), "fusion": other["w"]}

    found = ckpt_surgery.load_and_transform(fuse, saved, tmp_path / "b.safetensors", target=target)
    assert_same(found, {**wanted, "fusion": np.arange(3, dtype=np.float32)})


def test_partial_functions_and_objects_that_can_be_called_are_functions(saved: Path) -> None:
    class Take:
        def __call__(self, tree: Any) -> Any:
            return head(tree)

    for function in (Take(), functools.partial(lambda name, tree: head(tree), "head")):
        assert_same(ckpt_surgery.restore(function, saved), head(loaded(saved)))


# --- with open checkpoints, lazy results and plans ---


def test_results_are_in_the_containers_of_the_function_also_lazy_ones(saved: Path) -> None:
    def pair(tree: Any) -> Any:
        return tree["name"], {"w": tree["params"]["head"]["kernel"] * 2}

    assert_same(ckpt_surgery.restore(pair, saved), pair(loaded(saved)))
    name, made = ckpt_surgery.restore(pair, saved, lazy=True)
    assert name == "old"
    assert isinstance(made["w"], ckpt_surgery.LazyArray)
    assert_same(made["w"][1:3], (loaded(saved)["params"]["head"]["kernel"] * 2)[1:3])


def test_a_plan_of_a_function_is_carried_out_without_calling_it_again(saved: Path, tmp_path: Path) -> None:
    calls: list[Any] = []
    sort = ckpt_surgery.opaque(np.sort)

    def change(tree: Any) -> Any:
        calls.append(1)
        return {"sorted": sort(tree["params"]["head"]["kernel"]), "more": np.arange(20), "n": [tree["step"]]}

    plan = ckpt_surgery.plan(change, saved)
    ckpt_surgery.apply(plan, dst=tmp_path / "new")
    restored = ckpt_surgery.restore(ckpt_surgery.plan_restore(change, saved))
    assert len(calls) == 2
    wanted = change(loaded(saved))
    assert_same(loaded(tmp_path / "new"), wanted)
    assert_same(restored, {**wanted, "n": [int(wanted["n"][0])]})


def test_arrays_of_an_open_checkpoint_are_no_values_of_the_function(saved: Path) -> None:
    other = ckpt_surgery.open(saved)
    with pytest.raises(UsageError, match="`a`"):
        ckpt_surgery.restore(lambda tree: {"a": other["step"]}, saved)
