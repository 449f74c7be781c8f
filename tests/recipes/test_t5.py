"""T5 into T5X and back: every name, shape and value, against tables of its own."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.planner.plan import Plan
from tests.oracle.trees import restore, save
from tests.recipes import running
from tests.recipes import t5_layouts as layouts
from tests.recipes.families import converted
from tests.recipes.running import RECIPES, fails
from tests.recipes.t5_layouts import Parameter, Size, Slots
from tests.support.comparing import assert_same
from tests.support.slow import slow
from tests.support.trees import flattened, nested

Arrays = dict[str, np.ndarray]


def planned(name: str, listing: Mapping[str, str], *overrides: str) -> Plan:
    return running.planned(name, listing, overrides=overrides)


def result(plan: Plan) -> dict[str, str]:
    return {step.leaf.key.text: str(step.leaf.spec) for step in plan.steps}


def carried_out(name: str, arrays: Arrays, *overrides: str) -> Arrays:
    return converted(name, arrays, list(overrides))


def filled(listing: Mapping[str, str]) -> Arrays:
    """Random bits in every array: what only moves them about has to keep them all."""
    generator = np.random.default_rng(7)
    arrays = {}
    for key, described in listing.items():
        name, _, sizes = described.rstrip("]").partition("[")
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        shape = tuple(int(n) for n in sizes.split(",") if n)
        bits = generator.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
        arrays[key] = np.frombuffer(bits.tobytes(), dtype).reshape(shape)
    return arrays


# --- Mesh TensorFlow → T5X ------------------------------------------------------------------------

MODELS = {
    "T5 1.0": lambda size, biases: layouts.t5(size, "1.0", biases),
    "T5 1.1": lambda size, biases: layouts.t5(size, "1.1", biases),
    "decoder-only": layouts.decoder_only,
}
SLOTS: Sequence[Slots] = ("none", "whole", "factored")


@pytest.mark.parametrize("layers", [2, 13])  # 13: layer numbers of two digits
@pytest.mark.parametrize("biases", ["shared", slow("per layer")])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("model", MODELS)
def test_every_name_becomes_what_the_importer_makes_of_it(
    model: str, slots: Slots, biases: str, layers: int
) -> None:
    parameters = MODELS[model](Size(layers=layers), biases)
    plan = planned("t5-to-t5x", layouts.mesh_variables(parameters, slots, "bfloat16"))
    assert result(plan) == layouts.train_state(parameters, slots, "bfloat16")
    assert not plan.dropped
    assert not plan.warnings


def test_separate_embeddings_keep_their_towers() -> None:
    parameters = [p for p in layouts.t5(Size(), "1.1", "shared") if p.mesh != "shared/embedding"]
    parameters += [
        Parameter(f"{t}/embedding", f"{t}/token_embedder/embedding", "", (11, 6))
        for t in ("encoder", "decoder")
    ]
    plan = planned("t5-to-t5x", layouts.mesh_variables(parameters, "factored"))
    assert result(plan) == layouts.train_state(parameters, "factored")


def test_biases_of_one_tower_alone_keep_all_in_their_layers() -> None:
    """As in the importer: what is shared is decided for both towers at once."""
    size = Size(layers=2)
    per_layer = layouts.t5(size, "1.0", "per layer")
    parameters = [p for p in per_layer if "encoder/layers_1/relpos_bias" not in p.t5x]
    assert len(parameters) == len(per_layer) - 1
    plan = planned("t5-to-t5x", layouts.mesh_variables(parameters, "none"))
    assert result(plan) == layouts.train_state(parameters, "none")


def state_of(parameters: Sequence[Parameter], arrays: Arrays) -> Arrays:
    """The train state of T5X, from the table of names alone."""
    expected = {"state/step": arrays["global_step"].astype(np.int32)}
    for p in parameters:
        expected[f"target/{p.t5x}"] = arrays[p.mesh]
        state = {name: arrays.get(f"{p.mesh}_slot_{short}") for name, short in NAMES.items()}
        present = {name for name, slot in state.items() if slot is not None}
        unused = {"m"} | ({"v", "v_row", "v_col"} - present if present else set())
        for name in present | unused:
            dummy = np.zeros(1, np.float32)
            expected[f"state/param_states/{p.t5x}/{name}"] = dummy if name in unused else state[name]
    return expected


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("model", MODELS)
def test_values_stay_what_they_were(model: str, slots: Slots) -> None:
    parameters = MODELS[model](Size(), "shared")
    arrays = filled(layouts.mesh_variables(parameters, slots, "bfloat16"))
    arrays["global_step"] = np.array(1_000_000, np.int64)
    assert_same(carried_out("t5-to-t5x", arrays), state_of(parameters, arrays))


NAMES = {"v": "v", "v_row": "vr", "v_col": "vc"}


ONE_LAYER = layouts.mesh_variables(layouts.decoder_only(Size(layers=1), "shared"), "factored")


def test_a_step_beyond_int32_is_an_error() -> None:
    arrays = filled(ONE_LAYER)
    arrays["global_step"] = np.array(2**31, np.int64)
    with pytest.raises(DataError, match=r"`state/step`.*2147483648"):
        carried_out("t5-to-t5x", arrays)


# --- train state → inference state ----------------------------------------------------------------


def test_an_inference_state_has_parameters_and_step(tmp_path: Path) -> None:
    parameters = layouts.t5(Size(), "1.1", "shared")
    arrays = filled(layouts.train_state(parameters, "factored"))
    source = save(tmp_path / "train", nested(arrays | {"flax_mutables/cache/index": np.arange(3)}))
    applying.apply(RECIPES / "t5x-train-to-inference.yaml", source, dst=tmp_path / "inference")
    kept = {key: arrays[key] for key in layouts.inference_state(parameters)}
    found = restore(tmp_path / "inference")
    assert np.array_equal(found.pop("flax_mutables")["cache"]["index"], np.arange(3))
    assert_same({key: np.asarray(leaf) for key, leaf in flattened(found).items()}, kept)


def test_every_slot_is_dropped_by_the_rule_for_it() -> None:
    parameters = layouts.t5(Size(), "1.0", "shared")
    plan = planned("t5x-train-to-inference", layouts.train_state(parameters, "whole"))
    assert result(plan) == layouts.inference_state(parameters)
    assert {drop.rule.path for drop in plan.dropped} == {"rules[0]"}
    assert len(plan.dropped) == 4 * len(parameters)


# --- Hugging Face ↔ T5X ---------------------------------------------------------------------------


@pytest.mark.parametrize("biases", ["shared", "per layer"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_there_and_back_no_bit_changes(dtype: str, version: Any, biases: Any) -> None:
    parameters = layouts.t5(Size(), version, biases)
    arrays = filled(layouts.state_dict(parameters, dtype))
    there = carried_out("hf-t5-to-t5x", arrays, "step=25")
    expected = {
        f"target/{p.t5x}": arrays[p.hugging_face].T if p.transposed else arrays[p.hugging_face]
        for p in parameters
    }
    assert_same(there, expected | {"state/step": np.array(25, np.int32)})
    assert_same(carried_out("t5x-hf-t5", there), arrays)


TIED = {
    "encoder.embed_tokens.weight": "float32[11,6]",
    "decoder.embed_tokens.weight": "float32[11,6]",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "float32[5,4]",
}
"""What old files have besides, and no model reads."""


def test_stored_copies_go() -> None:
    parameters = layouts.t5(Size(), "1.0", "shared")
    listing = layouts.state_dict(parameters) | TIED | {"lm_head.weight": "float32[11,6]"}
    for settings in ([], ["tied_logits=true"]):
        plan = planned("hf-t5-to-t5x", listing, *settings)
        assert result(plan) == layouts.inference_state(parameters)
        assert {d.leaf.key.text for d in plan.dropped} == TIED.keys()
        [table] = [step for step in plan.steps if step.leaf.key.text == "target/token_embedder/embedding"]
        assert {read.leaf.key.text for read in reads(table.value)} == {"shared.weight", "lm_head.weight"}
    untied = planned("hf-t5-to-t5x", listing, "tied_logits=false")
    assert result(untied)["target/decoder/logits_dense/kernel"] == "float32[6,11]"


def test_the_config_says_how_many_layers_and_whether_logits_are_tied() -> None:
    parameters = layouts.t5(Size(layers=2), "1.0", "shared")
    listing = layouts.state_dict([p for p in parameters if not p.t5x.startswith("decoder/layers_1/")])
    config = {"model_type": "t5", "num_layers": 2, "num_decoder_layers": 1, "tie_word_embeddings": True}
    plan = running.planned("hf-t5-to-t5x", listing, config=config)
    assert {p.name: p.value for p in plan.params} == {
        "step": 0,
        "num_layers": 2,
        "num_decoder_layers": 1,
        "tied_logits": "auto",
    }
    assert "target/decoder/logits_dense/kernel" not in result(plan)
    for said, told in (
        ({"num_layers": 3}, "the encoder has 2 layers, not 3"),
        ({"model_type": "longt5"}, "the model is a longt5, not a T5"),
    ):
        fails(told, lambda c=config | said: running.planned("hf-t5-to-t5x", listing, config=c))


# --- what is refused ------------------------------------------------------------------------------

T5_10, T5_11 = layouts.t5(Size(), "1.0", "shared"), layouts.t5(Size(), "1.1", "shared")
MESH, HF, T5X = (
    layouts.mesh_variables(T5_11, "none"),
    layouts.state_dict(T5_10),
    layouts.inference_state(T5_10),
)
PART = {"state/step": "int32[]", "target/k": "float32[2]", "state/param_states/k/m": "float32[1]"}
BLOCK = "transformer/block_000/layer_00"
REFUSED: Mapping[str, Sequence[tuple[Mapping[str, str], str, Mapping[str, str], str]]] = {
    # what is listed, but for the keys that begin so; what is listed besides; the message
    "t5-to-t5x": [
        (
            ONE_LAYER,
            "-",
            {f"{BLOCK}1/adapter/kernel": "float32[4]"},
            f"no rule claims `{BLOCK}1/adapter/kernel`",
        ),
        *(
            (ONE_LAYER, "-", {name: "float32[4]"}, told)
            for name, told in (
                ("transformer/final_layer_norm/scale_slot_m", "no rule claims"),  # Adafactor with momentum
                (f"{BLOCK}2/layer_norm/scale", "table `norms` has no entry 'transformer 2'"),
                ("transformer/rms_norm/scale", "would be called `target/decoder/decoder_norm/scale`"),
                ("encoder/rms_norm/scale_slot_v", "the parameter of this slot is missing"),
                ("transformer/final_layer_norm/scale_slot_vr", "the other half, `_slot_vc`, is missing"),
                (f"{BLOCK}0/SelfAttention/o_slot_v", "two leaves would be called"),
            )
        ),
        (ONE_LAYER, "global_step", {}, "the rule claims nothing"),
        (ONE_LAYER, "transformer/final_layer_norm/scale", {}, "the rule claims nothing"),
        (ONE_LAYER, f"{BLOCK}1/DenseReluDense/wi/kernel", {}, "lacks a matrix of its feed-forward"),
        (MESH, "encoder/block_000/", {}, "the encoder has a block 1, but lacks one before it"),
        (
            MESH,
            "decoder/block_001/layer_001/EncDecAttention/k",
            {},
            "decoder lacks a matrix of its attention",
        ),
        (MESH, "decoder/block_000/layer_002/rms_norm/scale", {}, "a block of the decoder lacks a norm"),
        (MESH, "encoder/block_001/layer_001/DenseReluDense/wi_1", {}, "lacks a matrix of its feed-forward"),
    ],
    "t5x-train-to-inference": [
        (PART, "state/param_states", {}, "the rule claims nothing"),  # an inference state already
        (PART, "state/step", {}, "the rule claims nothing"),
        (PART, "-", {"state/ema/k": "float32[2]"}, "no rule claims `state/ema/k`"),
    ],
    "hf-t5-to-t5x": [
        (HF, "-", {"encoder.block.0.layer.0.SelfAttention.q.bias": "float32[20]"}, "no rule claims"),
        (HF, "-", {"encoder.block.0.layer.1.EncDecAttention.q.weight": "float32[20,6]"}, "no entry"),
        (HF, "-", {"decoder.block.0.layer.3.layer_norm.weight": "float32[6]"}, "no entry 'decoder 3'"),
        (HF, "shared.weight", TIED, "no rule claims `encoder.embed_tokens.weight`, `decoder.embed_tokens"),
    ],
    "t5x-hf-t5": [
        (T5X, "-", {"target/encoder/token_embedder/embedding": "float32[11,6]"}, "no rule claims"),
        (T5X, "-", {"target/encoder/layers_0/self_attention/query/kernel": "float32[6,20]"}, "no entry"),
        (T5X, "-", {"target/encoder/layers_0/relpos_bias/rel_embedding": "float32[4,5]"}, "two leaves"),
        (T5X, "-", {"target/decoder/layers_9/mlp/wi/kernel": "float32[6,9]"}, "but lacks one"),
        (T5X, "-", {"flax_mutables/cache/index": "int32[]"}, "no rule claims"),
    ],
}


@pytest.mark.each
@pytest.mark.parametrize("recipe", REFUSED)
def test_what_is_refused(recipe: str) -> None:
    for listing, gone, more, told in REFUSED[recipe]:
        kept = {name: described for name, described in listing.items() if not name.startswith(gone)}
        assert (len(kept) < len(listing)) is (gone != "-")
        fails(told, functools.partial(planned, recipe, {**kept, **more}))


@pytest.mark.each
@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (r"encoder\.block\.1\.", "the encoder has 1 layers, not 2"),  # only the config can tell
        (r"encoder\.block\.0\.", "the encoder has a layer 1, but lacks one before it"),
        (r"decoder\.block\.0\.layer\.2\.layer_norm.*", "a layer of the decoder lacks a "),
        (r"decoder\.block\.1\.layer\.1\.EncDecAttention\.k.*", "decoder lacks a matrix of its attention"),
        (r"encoder\.block\.0\.layer\.1\.DenseReluDense\.wi_1.*", "encoder lacks a matrix of its feed"),
        (r"decoder\..*", "a T5 has an encoder and a decoder; one of them, or its "),
    ],
)
def test_a_part_that_is_missing_is_an_error_both_ways(gone: str, told: str) -> None:
    kept = [p for p in T5_11 if not re.match(gone, p.hugging_face)]
    assert len(kept) < len(T5_11)
    for recipe, listing in (
        ("hf-t5-to-t5x", layouts.state_dict(kept)),
        ("t5x-hf-t5", layouts.inference_state(kept)),
    ):
        fails(told, functools.partial(planned, recipe, listing, "num_layers=2", "num_decoder_layers=2"))
