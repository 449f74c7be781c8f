"""Recipes for any model: run by name on checkpoints that stock Orbax wrote, checked against NumPy."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import DataError, UsageError
from tests.recipes.running import Run, Save, fails, planned
from tests.support.checkpoints import quiet, random, restored, restored_leaves
from tests.support.comparing import assert_same
from tests.support.heavy import jax, nn, ocp, optax

BF16 = np.dtype(ml_dtypes.bfloat16)


# --- cast -----------------------------------------------------------------------------------------


def test_cast_takes_every_float_array_and_nothing_else(save: Save, run: Run) -> None:
    tree = {
        "params": {"w": random((4, 8)), "half": random((3,), 1).astype(np.float16), "n": np.arange(3)},
        "opt_state": [{"mu": random((4, 8), 2)}, None, {}],
        "rng": jax.random.key(3),
        "name": "hello",
        "step": 7,
        "rate": 0.1,
    }
    old = restored(save("old", tree))
    changed = ("params/w", "params/half", "opt_state/0/mu")
    assert_same(
        run("@cast", save("again", tree)),
        {k: v.astype(BF16) if k in changed else v for k, v in old.items()},
    )
    found = run("@cast", save("third", tree), name="params", set=["tree=params", "dtype=float16"])
    assert_same(found, {k: v.astype(np.float16) if k == "params/w" else v for k, v in old.items()})


def test_cast_and_numbers_beyond_the_range(save: Save, run: Run) -> None:
    path = save("old", {"w": np.array([1.0, 70000.0], np.float32)})
    fails("`w`: ", lambda: run("@cast", path, set=["dtype=float16"]), DataError)
    found = run("@cast", path, name="saturated", set=["dtype=float16", "on_overflow=saturate"])
    assert found["w"].tolist() == [1.0, 65504.0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "int64", "bool"])
def test_cast_does_not_truncate_weights(dtype: str, save: Save, run: Run) -> None:
    path = save("old", {"w": random((2, 2)), "n": np.array([1, 2], np.int16)})
    fails("quantize", lambda: run("@cast", path, set=[f"dtype={dtype}"]))
    fails("quantize", lambda: run("@cast", path, set=[f"dtype={dtype}", "on_overflow=saturate"]))
    if dtype != "bool":
        found = run("@cast", path, name=dtype, set=[f"dtype={dtype}", "floats=[int16]"])
        assert (found["n"].dtype.name, found["n"].tolist()) == (dtype, [1, 2])


def test_a_cast_with_nothing_to_do_says_so(save: Save, run: Run) -> None:
    path = save("old", {"w": random((2, 2)).astype(BF16)})
    fails("the rule claims nothing: `when` is false for `w`", lambda: run("@cast", path))
    fails("bfloat17", lambda: run("@cast", path, set=["dtype=bfloat17"]))


def test_drop_optimizer_wherever_it_is(save: Save, run: Run) -> None:
    trained = optax.adamw(1e-3).init({"w": random((2,))})
    tree = {"params": {"w": random((2,)), "opt_state_head": random((2,), 1)}, "step": 7}
    assert_same(run("@drop-optimizer", save("old", {**tree, "opt_state": trained})), restored_leaves(tree))
    leaves = ["state/optimizer/0/mu/w", "state/optimizer", "optimizers/w", "params/optimizer_head/w"]
    plan = planned("drop-optimizer", leaves, overrides=["name=optimizer"])
    assert [d.leaf.key.text for d in plan.dropped] == leaves[:2]
    fails("claims nothing", lambda: planned("drop-optimizer", leaves))


# --- stack-layers, unstack-layers -----------------------------------------------------------------


def layered(separator: str, count: int = 3) -> dict[str, Any]:
    """A tree with layers under params and in the optimizer's state."""

    def params(seed: int) -> dict[str, Any]:
        layers = {
            n: {
                "mlp": {"wi_0": random((4, 6), seed + n), "wi_1": random((4, 6), seed + n).astype(BF16)},
                "scale": random((4,), seed + n),
                "count": np.int64(n),
            }
            for n in range(count)
        }
        if separator == "/":
            return {"layers": {str(n): layer for n, layer in layers.items()}, "embed": random((5, 4), seed)}
        return {f"layers{separator}{n}": layer for n, layer in layers.items()} | {
            "embed": random((5, 4), seed)
        }

    return {"params": {"decoder": params(0)}, "opt_state": [{"mu": params(50), "count": 3}, None]}


@pytest.mark.parametrize("separator", ["_", "/", "."])
@pytest.mark.parametrize("axis", [0, 1])
def test_stacking_and_taking_apart_gives_the_same_bits(
    separator: str, axis: int, save: Save, run: Run, tmp_path: Path
) -> None:
    tree = layered(separator)
    if axis == 1:  # what has no axis has no second place for one
        for holder in (tree["params"]["decoder"], tree["opt_state"][0]["mu"]):
            layers = holder["layers"] if separator == "/" else holder
            for layer in layers.values():
                if isinstance(layer, dict):
                    del layer["count"]
    path = save("old", tree)
    old = restored(path)
    stacked = run("@stack-layers", path, name="stacked", set=[f"axis={axis}"])
    parts = [old[f"params/decoder/layers{separator}{n}/mlp/wi_1"] for n in range(3)]
    np.testing.assert_array_equal(stacked["params/decoder/layers/mlp/wi_1"], np.stack(parts, axis))
    assert not any(part.isdecimal() for key in stacked for part in key.split("/")[2:])
    options = [f"axis={axis}", f"separator={separator}"]
    assert_same(run("@unstack-layers", tmp_path / "stacked", name="again", set=options), old)


def test_stacks_of_different_heights() -> None:
    """Layers are counted for each stack, whatever stands between name and number; lists are layers too."""
    leaves = [f"encoder/layers_{n}/{leaf}" for n in range(2) for leaf in "kb"]
    leaves += [f"decoder/layers/[{n}]/k" for n in range(3)]
    leaves += ["a(b[c/h_0/k", "a(b[c/h/1/k"]
    leaves += [f"model.layers.{n}.up.weight" for n in range(12)]  # Hugging Face's
    plan = planned("stack-layers", leaves)
    assert {s.leaf.key.text: s.leaf.spec.shape[0] for s in plan.steps if s.leaf.spec} == {
        "encoder/layers/k": 2,
        "encoder/layers/b": 2,
        "decoder/layers/k": 3,
        "a(b[c/h/k": 2,
        "model.layers.up.weight": 12,
    }
    assert [key for _, key in plan.steps[-1].sources] == leaves[-12:]  # 10 after 9


def test_layers_of_two_names() -> None:
    """Each stack is taken apart into as many layers as it has."""
    leaves = [f"{name}_{n}/k" for name, count in [("Enc", 2), ("Dec", 3)] for n in range(count)]
    plan = planned("stack-layers", leaves, overrides=["name=[Enc, Dec]"])
    heights = {s.leaf.key.text: s.leaf.spec.shape[0] for s in plan.steps if s.leaf.spec}
    assert heights == {"Enc/k": 2, "Dec/k": 3}
    stacks = {key: f"float32[{n},2]" for key, n in heights.items()}
    plan = planned("unstack-layers", stacks, overrides=["name=[Enc, Dec]"])
    assert [s.leaf.key.text for s in plan.steps] == leaves


@pytest.mark.parametrize("name", ["CheckpointBlk", "a.b*", "(x", "^y?", "x|layers", "$1", "N/M"])
def test_layers_of_any_name(name: str) -> None:
    """A name is no regular expression; the names known by default are then none."""
    leaves = {f"params/{name}_{n}/k": "float32[2]" for n in range(11)} | {"layers_0/k": "float32[2]"}
    plan = planned("stack-layers", leaves, overrides=[f"name={name}"])
    stacked = {s.leaf.key.text: str(s.leaf.spec) for s in plan.steps}
    assert stacked == {f"params/{name}/k": "float32[11,2]", "layers_0/k": "float32[2]"}
    stacks = {key: spec for key, spec in stacked.items() if key != "layers_0/k"}
    plan = planned("unstack-layers", stacks | {"layers/k": "float32[3,2]"}, overrides=[f"name={name}"])
    assert {s.leaf.key.text: str(s.leaf.spec) for s in plan.steps} == {
        **{f"params/{name}_{n}/k": "float32[2]" for n in range(11)},
        "layers/k": "float32[3,2]",
    }
    assert (plan.dropped, plan.warnings) == ((), ())


def test_a_model_whose_layers_are_scanned(save: Save, run: Run, tmp_path: Path) -> None:
    """Layers of a loop and of `nn.scan` are the same model: the same output, either way round."""

    class CheckpointBlk(nn.Module):
        @nn.compact
        def __call__(self, x: "jax.Array", _: Any = None) -> "tuple[jax.Array, None]":
            return x + nn.tanh(nn.Dense(4)(x)), None

    class Loop(nn.Module):
        @nn.compact
        def __call__(self, x: "jax.Array") -> "jax.Array":
            for _ in range(3):
                x, _ = CheckpointBlk()(x)
            return x

    class Scan(nn.Module):
        @nn.compact
        def __call__(self, x: "jax.Array") -> "jax.Array":
            scanned = nn.scan(
                CheckpointBlk, variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            return scanned(name="CheckpointBlk")(x, None)[0]

    x = random((2, 4), 9)
    params = Loop().init(jax.random.key(0), x)
    stacked = run("@stack-layers", save("loop", params), set=["name=CheckpointBlk"], name="scan")
    whole = {"Dense_0": {n: stacked[f"params/CheckpointBlk/Dense_0/{n}"] for n in ("kernel", "bias")}}
    found = Scan().apply({"params": {"CheckpointBlk": whole}}, x)
    np.testing.assert_allclose(found, Loop().apply(params, x), rtol=1e-6)
    back = run("@unstack-layers", tmp_path / "scan", set=["name=CheckpointBlk"], name="back")
    assert_same(back, restored_leaves(params))


# --- insert-layers --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 3])
def test_new_layers_come_from_the_target(at: int, save: Save, run: Run) -> None:
    old, fresh = layered("_"), layered("_", 5)
    fresh = jax.tree.map(lambda leaf: leaf + 1 if isinstance(leaf, np.ndarray) else leaf, fresh)
    new = run("@insert-layers", save("old", old), target=save("fresh", fresh), set=[f"at={at}", "new=2"])
    before, after = restored_leaves(old), restored_leaves(fresh)
    wanted = {}
    for key, value in after.items():
        number = next((int(part[7:]) for part in key.split("/") if part.startswith("layers_")), None)
        if number is None:
            wanted[key] = before[key]
        elif at <= number < at + 2:
            wanted[key] = value
        else:
            moved = number if number < at else number - 2
            wanted[key] = before[key.replace(f"layers_{number}", f"layers_{moved}")]
    assert_same(new, wanted)


@pytest.mark.parametrize("at", [0, 2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_new_layers_in_a_stack(at: int, axis: int, save: Save, run: Run) -> None:
    three, four = (random((count, 4, 6), count) for count in (3, 4))
    old, fresh = (
        {"params": {"layers": {"w": np.moveaxis(w, 0, axis)}}, "head": random((4,), len(w)), "step": len(w)}
        for w in (three, four)
    )
    given = [f"at={at}", f"axis={axis}"]
    new = run("@insert-layers", save("old", old), target=save("fresh", fresh), set=given)
    wanted = np.concatenate([three[:at], four[at : at + 1], three[at:]])
    np.testing.assert_array_equal(new["params/layers/w"], np.moveaxis(wanted, 0, axis))
    np.testing.assert_array_equal(new["head"], old["head"])
    assert new["step"] == 3


def test_inserting_where_layers_differ_and_the_target_has_less() -> None:
    """The new layer need not look like the one before; what the target has in no layer is dropped."""
    source = ["layers_0/w", "layers_0/dense", "layers_1/w", "layers_1/moe", "mu/layers_0/w", "mu/layers_1/w"]
    target = [*source[:4], "layers_2/w", "layers_2/moe"]
    plan = planned("insert-layers", source, target=target, overrides=["at=1"])
    assert [s.leaf.key.text for s in plan.steps] == target
    assert [d.leaf.key.text for d in plan.dropped] == ["mu/layers_0/w", "mu/layers_1/w"]


# --- average --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_checkpoints_is_averaged(count: int, save: Save, run: Run) -> None:
    def tree(seed: int) -> dict[str, Any]:
        return {
            "params": {"w": random((4, 8), seed), "half": random((3,), seed).astype(BF16)},
            "opt_state": [{"mu": random((4, 8), seed + 9), "count": np.int32(seed)}, None],
            "rng": jax.random.key(seed),
            "name": f"run {seed}",
            "step": 100 + seed,
        }

    paths = [save(f"run-{seed}", tree(seed)) for seed in range(count)]
    trees = [restored(path) for path in paths]
    wanted = dict(trees[0])
    for key in ("params/w", "params/half", "opt_state/0/mu"):
        total = trees[0][key].astype(np.float32)
        for other in trees[1:]:
            total = total + other[key].astype(np.float32)
        wanted[key] = (total / np.float32(count)).astype(wanted[key].dtype)
    counters = {key: trees[-1][key] for key in ("opt_state/0/count", "step")}
    assert_same(run("@average", *paths), wanted | counters)
    params = run("@average", *paths, name="params", set=["tree=params"])
    others = {k: v if k.startswith("params") else trees[0][k] for k, v in wanted.items()}
    assert_same(params, others | counters)


def test_the_last_steps_of_a_run_are_averaged(save: Save, run: Run, tmp_path: Path) -> None:
    steps = tmp_path / "run"
    with quiet(), ocp.CheckpointManager(steps) as manager:
        for step in (9, 10, 100):
            state = {"params": {"w": np.full((4,), step, np.float32)}, "step": step}
            manager.save(step, args=ocp.args.StandardSave(state))
    for last, mean in ((2, 55.0), (3, 119 / 3)):
        w = np.full((4,), np.float32(mean), np.float32)
        assert_same(run("@average", steps, last=last, name=f"mean-{last}"), {"params/w": w, "step": 100})
    flat = save("flat", {"a": random((2,))})
    for sources, options, says in (
        ([steps], {"last": 4}, "has the finished steps 9, 10, 100"),
        ([steps], {"last": 1}, "the recipe takes 2 sources or more"),
        ([steps], {"last": 2, "step": 9}, "`step=9` chooses one step"),
        ([steps, steps], {"last": 2}, "one source; 2 are given"),
        ([flat], {"last": 2}, "not a directory of steps"),
    ):
        plan = functools.partial(applying.plan, "@average", *sources, **options)
        fails(says, plan, UsageError)


def test_what_only_others_have_is_not_taken() -> None:
    more = {"n": "int32[2]", "name": "string", "rng": "prng_key", "none": "empty", "rate": "scalar:float32"}
    plan = planned("average", {"a": "float32[2]"}, {"a": "float32[2]"} | more)
    assert [s.leaf.key.text for s in plan.steps] == ["a"]
    assert {d.leaf.key.text for d in plan.dropped} == set(more)


# --- merge-two-towers -----------------------------------------------------------------------------


def test_two_towers_get_a_fusion_layer(save: Save, run: Run) -> None:
    image = {"params": {"patch": {"kernel": random((4, 6))}}, "step": 3, "opt_state": {"mu": random((2,))}}
    text = {"params": {"embed": {"table": random((5, 4), 1)}}, "step": 9}
    options = ["image_width=6", "text_width=4", "fusion_width=32", "dtype=bfloat16", "seed=7"]
    paths = save("image", image), save("text", text)
    found = run("@merge-two-towers", *paths, set=options)
    kernel = found.pop("params/fusion/kernel")  # type: ignore[attr-defined]
    assert_same(
        found,
        {
            "params/image/patch/kernel": image["params"]["patch"]["kernel"],
            "params/text/embed/table": text["params"]["embed"]["table"],
            "params/fusion/bias": np.zeros(32, BF16),
        },
    )
    assert (kernel.shape, kernel.dtype) == ((10, 32), BF16)
    # lecun_normal: variance 1 / fan_in
    assert 0.8 < kernel.astype(np.float32).std() * 10**0.5 < 1.2
    again = run("@merge-two-towers", *paths, name="again", set=options)["params/fusion/kernel"]
    assert kernel.tobytes() == again.tobytes()
    reseeded = [*options[:-1], "seed=8"]
    other = run("@merge-two-towers", *paths, name="other", set=reseeded)["params/fusion/kernel"]
    assert kernel.tobytes() != other.tobytes()
    dropped = applying.plan("@merge-two-towers", *paths, set=options).dropped
    gone = [(d.source, d.leaf.key.text, d.why) for d in dropped]
    assert gone == [
        (s, k, "unmatched: drop") for s, k in (("image", "opt_state/mu"), ("image", "step"), ("text", "step"))
    ]


# --- what is refused ------------------------------------------------------------------------------


def layers(count: int, name: str = "layers_{}/w") -> dict[str, str]:
    return {name.format(n): "float32[2]" for n in range(count)}


STACK, HIGHER = ({"layers/w": f"float32[{height},2]"} for height in (3, 4))
NOT_DEEPER = "the target does not have the old layers and 1 more (at `layers_{}/w`)"
TOWERS = ({"params/a": "float32[2]"}, {"params/b": "float32[2]"})
WIDTHS = "image_width=6 text_width=4"
REFUSED: Mapping[str, Sequence[tuple[Sequence[Any], str, str]]] = {
    # the sources (of `insert-layers`, the source and the target), what is set, the message
    "stack-layers": [
        ([{"layers_0/w": "float32[2]", "layers_2/w": "float32[2]"}], "", "no leaf is at place 1"),
        ([{"layers_0/w": "float32[2]", "layers_1/w": "float32[3]"}], "", "shapes have to be equal"),
        ([{"layers_0/w": "float32[2]", "layers_1/w": "bfloat16[2]"}], "", "Cast them to one dtype first"),
        ([{"layers_0/w": "float32[2]", "layers/0/w": "float32[2]"}], "", "gives 0 for 2 leaves"),
        (
            [["p/layers_0/k", "p/layers_1/k", "p/layers_2/k", "p/layers_0/b"]],
            *("", "there is a layer 1, and it does not have this leaf (at `p/layers/b`)"),
        ),
        (  # the last layer has none of the others' leaves
            [["h.0.k", "h.1.k", "h.2.b"]],
            *("", "there is a layer 2, and it does not have this leaf (at `h.k`)"),
        ),
    ],
    "unstack-layers": [
        ([{"layers/w": "float32[0,3]"}], "", "`for` has no values, so that nothing is made"),
        (
            [{"h/k": "float32[2,3]", "h/b": "float32[3]", "h/c": "float32[2]"}],
            *("", "2 along axis 0, and the first leaf of `h` has 3"),
        ),
        ([{"layers/w": "float32[2,3]"}], "layers=3", "2 along axis 0, not 3"),
        ([{"layers/w": "float32[2]"}], "layers=2 axis=1", "1 axes: no axis 1 over the layers"),
        ([{"layers/w": "float32[2]"}], "layers=2 axis=-1", "axis counts from the first one, 0"),
        ([{"layers/0/w": "float32[2]"}], "layers=2", "the rule claims nothing: no key matches"),
    ],
    "insert-layers": [
        ([layers(1), layers(2)], "", "say which number the first new layer gets: --set at=N"),
        ([layers(1), None], "at=0", "`fill` needs a target"),
        ([layers(1), layers(3)], "at=0", "no source leaf is called `layers_1/w`"),
        ([layers(2), layers(2)], "at=1", NOT_DEEPER.format(1)),  # the last layer would have no place
        ([layers(2, "h.{}.w"), layers(3, "h.{}.w")], "at=2 new=2", "the old layers and 2 more"),
        ([layers(3), layers(2)], "at=2", NOT_DEEPER.format(2)),  # shallower
        ([layers(2), layers(2)], "at=3", "at is 3, and there is no layer 2 that the new ones could follow"),
        ([STACK, STACK], "at=1", "`layers/w` has shape [4, 2], the target has [3, 2]"),
        ([STACK, HIGHER], "at=7", "out of bounds"),
    ],
    "average": [
        (
            [["a", "b"], ["a"]],
            *("", "1 of 2 checkpoints have it as an array of floating-point numbers (at `b`)"),
        ),
        ([{"a": "float32[2]"}, {"a": "float32[3]"}], "", "shapes have to be equal"),
        ([{"a": "float32[2]"}, {"a": "int32[2]"}], "", "1 of 2 checkpoints have it"),
        (
            [{"a": "bfloat16[2]"}, {"a": "float32[2]"}],
            *("", "float32 in one checkpoint, bfloat16 in the first: cast them to one type before (at `a`)"),
        ),
        ([{"a": "int32[2]"}, {"a": "int32[2]"}], "", "the rule claims nothing"),
    ],
    "merge-two-towers": [
        (TOWERS, "image_width=6", "say how wide the towers are"),
        (({"a": "float32[2]"}, TOWERS[1]), WIDTHS, "no key matches"),
    ],
}


@pytest.mark.each
@pytest.mark.parametrize("recipe", REFUSED)
def test_what_is_refused(recipe: str) -> None:
    for leaves, given, says in REFUSED[recipe]:
        *sources, target = leaves if recipe == "insert-layers" else [*leaves, None]
        run = functools.partial(planned, recipe, *sources, target=target, overrides=given.split())
        fails(says, run)
