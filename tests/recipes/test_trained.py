"""`convert --to hf` takes runs as MaxText and tunix leave them, with the model's config.json in the run."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.inputs.conversions import choose_conversion
from tests.recipes.trained import (
    TREES,
    back,
    bare,
    flattened,
    nested,
    numbered,
    one_root,
    pretrained,
    reinforced,
    save_model,
    save_run,
    tuned,
    weights,
)
from tests.support.comparing import assert_same
from tests.support.heavy import ocp
from tests.support.slow import slow


def with_config(run: Path, hf: Path) -> Path:
    run.mkdir(exist_ok=True)
    shutil.copy(hf / "config.json", run)
    return run


def as_npz(run: Path, tree: dict[str, Any], hf: Path) -> Path:
    """A tree as a file with a config beside it, which is quicker than a step."""
    with_config(run, hf)
    np.savez(run / "tree.npz", **flattened(tree))
    return run / "tree.npz"


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("tree", TREES)
def test_every_tree_of_a_run(hf: Path, tmp_path: Path, tree: str, scan: bool) -> None:
    arrays = save_model(hf, "qwen3")
    items = TREES[tree](weights(hf, "maxtext", scan=scan))
    save_run(tmp_path / "run", items)
    run = with_config(tmp_path / "run", hf)
    assert_same(back(run), arrays)
    if len(items) > 1:
        assert_same(back(run, item="model_params"), arrays)


FAMILIES = {
    "llama": (reinforced, False),
    "mistral": (tuned, True),
    "qwen2": (one_root, False),
    "qwen3_moe": (pretrained, True),
    "mixtral": (bare, False),
    "gemma2": (tuned, True),
    "gemma3_text": (reinforced, True),
    "gpt_oss": (one_root, True),
    "deepseek_v3": (tuned, True),  # whose bias of the gate is among the weights
    "llama4_text": (bare, True),
}


@pytest.mark.parametrize("other_way", [False, slow(True)])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family(hf: Path, tmp_path: Path, kind: str, other_way: bool) -> None:
    make, scan = FAMILIES[kind]
    arrays = save_model(hf, kind)
    flat = weights(hf, "maxtext", scan=scan != other_way)
    tree = next(iter(make(flat if scan != other_way else numbered(flat)).values()))
    found = back(as_npz(tmp_path / "run", tree, hf))
    assert sorted(found) == sorted(arrays)
    for key, array in arrays.items():
        np.testing.assert_allclose(found[key], array, rtol=2e-6, atol=2e-7)


@pytest.mark.slow("trains models of MaxText")
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "deepseek_v3"])
def test_layers_along_the_first_axis(hf: Path, tmp_path: Path, kind: str) -> None:
    """As MaxText has them with param_scan_axis=0; the bias of DeepSeek's gate is in `nnx_aux`."""
    arrays = save_model(hf, kind)
    stacks = {"layers", "dense_layers", "moe_layers"}
    turned = {
        key: np.swapaxes(a, 0, 1) if stacks & set(key.split("/")) and "gate/bias" not in key else a
        for key, a in weights(hf, "maxtext").items()
    }
    tree = pretrained(turned)["items"]
    assert_same(back(as_npz(tmp_path / "run", tree, hf)), arrays)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "qwen3_moe"])
def test_tunix(hf: Path, tmp_path: Path, kind: str, value: bool) -> None:
    arrays = save_model(hf, kind)
    flat = {key if value else key.removesuffix("/value"): a for key, a in weights(hf, "tunix").items()}
    save_run(tmp_path / "run", {"model_params": nested(flat), "optimizer_state": {"step": np.uint32(1)}})
    assert_same(back(with_config(tmp_path / "run", hf)), arrays)


# --- one of several -----------------------------------------------------------------------------------


def test_the_item_with_the_model_is_read_and_named(hf: Path, tmp_path: Path) -> None:
    save_model(hf, "qwen3")
    run = tmp_path / "run"
    save_run(run, tuned(weights(hf, "maxtext")))
    for about in (ckpt_surgery.inspect(run), ckpt_surgery.plan(None, run)):
        (warning,) = about.warnings
        assert warning.endswith("the item `model_params` is read, as it holds the model, not optimizer_state")
    assert ckpt_surgery.inspect(run).item == "model_params"
    assert ckpt_surgery.inspect(run, item="model_params").warnings == ()
    assert ckpt_surgery.plan(None, run, item="model_params").warnings == ()


def test_two_items_that_can_hold_the_model(hf: Path, tmp_path: Path) -> None:
    save_model(hf, "qwen3")
    items = tuned(weights(hf, "maxtext"))
    save_run(tmp_path / "run", {**items, "ema": items["model_params"]})
    run = with_config(tmp_path / "run", hf)
    with pytest.raises(UsageError, match="several items with arrays: `ema`, `model_params`"):
        back(run)
    back(run, item="ema")


def test_stacked_layers_and_others_in_one_tree(hf: Path, tmp_path: Path) -> None:
    arrays = save_model(hf, "qwen3")
    single = weights(hf, "maxtext", scan=False)
    doubled = {key: 2 * array if "layers" in key else array for key, array in single.items()}
    both = as_npz(tmp_path / "run", {"params": {"params": nested({**doubled, **weights(hf, "maxtext")})}}, hf)
    with pytest.raises(UsageError, match="layers that are stacked and layers that are not") as caught:
        back(both)
    assert '`set={"scan": True}` or `set={"scan": False}`' in str(caught.value)
    assert_same(back(both, set={"scan": True}), arrays)
    found = back(both, set={"scan": False})
    assert_same(found, {key: 2 * array if ".layers." in key else array for key, array in arrays.items()})


@pytest.mark.slow("trains models of MaxText")
def test_one_root_that_can_be_maxtexts_or_not(hf: Path, tmp_path: Path) -> None:
    """For Llama the values differ: a wrong guess would be a wrong model."""
    arrays = save_model(hf, "llama")
    save_run(tmp_path / "run", one_root(weights(hf, "maxtext")))
    run = with_config(tmp_path / "run", hf)
    with pytest.raises(UsageError, match="can be in the layout maxtext or jax") as caught:
        back(run)
    assert '`set={"layout": "maxtext"}`' in str(caught.value)
    found = back(run, set={"layout": "maxtext"})
    for key, array in arrays.items():
        np.testing.assert_allclose(found[key], array, rtol=2e-6)
    ckpt_surgery.convert(hf, tmp_path / "jax.npz", to="jax", set={"layer_axis": 1})
    with np.load(tmp_path / "jax.npz") as file:
        ours = as_npz(tmp_path / "ours", {key: file[key] for key in file.files}, hf)
    assert_same(back(ours, set={"layout": "jax"}), arrays)


def test_metadata_says_that_maxtext_wrote_it(hf: Path, tmp_path: Path) -> None:
    arrays = save_model(hf, "llama")
    save_run(tmp_path / "run", one_root(weights(hf, "maxtext")), metadata={"scan_layers": True})
    found = back(with_config(tmp_path / "run", hf))
    for key, array in arrays.items():
        np.testing.assert_allclose(found[key], array, rtol=2e-6)


def test_axes_that_the_shapes_do_not_tell(hf: Path, tmp_path: Path) -> None:
    """All arrays of the stack are as long along both axes."""
    save_model(hf, "qwen2")
    tree = {
        "params": {
            "token_embedder": {"embedding": np.zeros((4, 3), np.float32)},
            "decoder": {"layers": {"mlp": {"wi_0": {"kernel": np.zeros((3, 3, 5), np.float32)}}}},
        }
    }
    source = as_npz(tmp_path / "run", tree, hf)
    with pytest.raises(UsageError, match="along axis 0 or 1") as caught:
        choose_conversion(source, "hf")
    assert '`set={"layer_axis": 0}` or `set={"layer_axis": 1}`' in str(caught.value)
    assert choose_conversion(source, "hf", ["layer_axis=1"]).set == ("layout=jax", "layer_axis=1")


# --- what is written ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scan", [True, False])
def test_steps_say_whether_layers_are_stacked(hf: Path, tmp_path: Path, scan: bool) -> None:
    save_model(hf, "qwen3")
    run = tmp_path / "run"
    options = {"dst_step": 3, "dst_item": "items"}
    ckpt_surgery.convert(hf, run, to="maxtext", set={"scan": scan}, **options)
    with ocp.CheckpointManager(run) as manager:
        assert manager.metadata(3).custom_metadata["scan_layers"] is scan
    ckpt_surgery.convert(run, tmp_path / "copy")
    assert ckpt_surgery.inspect(tmp_path / "copy").metadata["scan_layers"] is scan
    ckpt_surgery.convert(hf, tmp_path / "bare", to="maxtext", set={"scan": scan})
    assert "scan_layers" not in ckpt_surgery.inspect(tmp_path / "bare").metadata


def test_an_entry_that_does_not_hold_any_more_is_corrected(hf: Path, tmp_path: Path) -> None:
    save_model(hf, "qwen3")
    ckpt_surgery.convert(hf, tmp_path / "run", to="maxtext", dst_step=3)
    ckpt_surgery.apply("@unstack-layers", tmp_path / "run", dst=tmp_path / "new", set={"axis": 1})
    keys = {leaf.key.text for leaf in ckpt_surgery.inspect(tmp_path / "new").leaves}
    assert "params/params/decoder/layers_0/mlp/wo/kernel" in keys
    assert ckpt_surgery.inspect(tmp_path / "new").metadata["scan_layers"] is False
