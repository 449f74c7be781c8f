"""`@hf-to-flax` makes the trees of the Flax classes of Transformers, and `@flax-to-hf` the weights again.

What the Flax classes have was recorded by tests/recipes/peers/flax_classes.py, with weights that are known
from their names.
"""

import functools
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.functions.arrays import reads
from tests.recipes.flax_weights import told, weights
from tests.recipes.running import Save, fails, planned
from tests.support.heavy import serialization, traverse_util
from tests.support.slow import slow

DATA = Path(__file__).parent.parent / "data" / "flax_classes"
NO_METADATA = "the custom metadata (`format`) is left out: flax checkpoints have no place for it"
Arrays = Mapping[str, np.ndarray]


def recorded(case: str, name: str) -> dict[str, Any]:
    return read(DATA / f"{case}.json.gz")[name]


def read(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


def hf_model(directory: Path, arrays: Arrays, config: Mapping[str, Any] | None) -> Path:
    """A model as Hugging Face's library saves it; gives the path of its weights."""
    directory.mkdir()
    save_file(dict(arrays), directory / "model.safetensors", {"format": "pt"})
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    return directory / "model.safetensors"


def tree(path: Path) -> dict[str, np.ndarray]:
    flat = traverse_util.flatten_dict(serialization.msgpack_restore(path.read_bytes()))
    return {"/".join(key): np.asarray(array) for key, array in flat.items()}


def descriptions(arrays: Arrays) -> dict[str, list[Any]]:
    return {key: told(array) for key, array in arrays.items()}


def check(tmp_path: Path, case: str, name: str) -> None:
    model = recorded(case, name)
    arrays = weights(model["weights"])
    source = hf_model(tmp_path / "hf", arrays, model["config"])
    made = source.with_name("flax_model.msgpack")
    plan = applying.apply("@hf-to-flax", source, dst=made).plan
    assert plan.warnings == (NO_METADATA,)
    assert descriptions(tree(made)) == model["tree"]
    plan = applying.apply("@flax-to-hf", made, dst=tmp_path / "back").plan
    assert plan.warnings == ()
    assert descriptions(load_file(tmp_path / "back" / "model.safetensors")) == descriptions(arrays)
    assert (tmp_path / "back" / "config.json").read_text() == json.dumps(model["config"])


RECORDS = sorted(path.name.removesuffix(".json.gz") for path in DATA.iterdir())
CLASSES = [(case, name) for case in RECORDS for name in read(DATA / f"{case}.json.gz")]
QUICK = ("gpt2", "vit", "whisper", "t5_gated", "llama", "wav2vec2")
"""The first class of these is tried in every run."""


def first(case: str) -> str:
    return next(name for known, name in CLASSES if known == case)


def test_every_class_is_recorded() -> None:
    assert (len(RECORDS), len(CLASSES)) == (43, 128)


@pytest.mark.parametrize(
    ("case", "name"),
    [one if one[0] in QUICK and one[1] == first(one[0]) else slow(one) for one in CLASSES],
)
def test_there_and_back(tmp_path: Path, case: str, name: str) -> None:
    check(tmp_path, case, name)


# --- files as they are found ---------------------------------------------------------------------------


def some(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


EXTRA = {
    ("gpt2", "GPT2LMHeadModel"): {
        "lm_head.weight": some(97, 12),
        "transformer.h.0.attn.bias": some(1, 1, 30, 30),
        "transformer.h.0.attn.masked_bias": some(),
        "transformer.h.1.attn.bias": some(1, 1, 30, 30),
    },
    ("bert", "BertForPreTraining"): {
        "bert.embeddings.position_ids": np.arange(30)[None],
        "cls.predictions.decoder.weight": some(97, 12),
        "cls.predictions.decoder.bias": some(97),
    },
    ("roberta", "RobertaForMaskedLM"): {
        "roberta.embeddings.token_type_ids": np.arange(30)[None],
        "lm_head.decoder.weight": some(97, 12),
        "lm_head.decoder.bias": some(97),
    },
    ("t5", "T5ForConditionalGeneration"): {
        "encoder.embed_tokens.weight": some(97, 12),
        "decoder.embed_tokens.weight": some(97, 12),
        "lm_head.weight": some(97, 12),
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": some(8, 3),
    },
    ("bart", "BartForConditionalGeneration"): {
        "model.encoder.embed_tokens.weight": some(97, 12),
        "lm_head.weight": some(97, 12),
    },
    ("marian", "MarianMTModel"): {"model.encoder.embed_positions.weight": some(30, 12)},
    ("whisper", "WhisperForConditionalGeneration"): {"proj_out.weight": some(97, 12)},
    ("distilbert", "DistilBertForMaskedLM"): {"vocab_projector.weight": some(97, 12)},
    ("electra", "ElectraForMaskedLM"): {"generator_lm_head.weight": some(97, 10)},
    ("llama", "LlamaForCausalLM"): {"model.layers.1.self_attn.rotary_emb.inv_freq": some(3)},
    ("clip", "CLIPModel"): {
        "text_model.embeddings.position_ids": np.arange(14)[None],
        "vision_model.embeddings.position_ids": np.arange(5)[None],
    },
}


HEADS = ("lm_head.weight", "proj_out.weight", "projector.weight", "decoder.weight")


@pytest.mark.parametrize(("case", "name"), EXTRA)
def test_copies_and_what_flax_computes_are_dropped(tmp_path: Path, case: str, name: str) -> None:
    model = recorded(case, name)
    arrays = weights(model["weights"])
    extra = EXTRA[case, name]
    assert not arrays.keys() & extra.keys()
    plan = applying.plan("@hf-to-flax", hf_model(tmp_path / "hf", arrays | extra, model["config"]))
    heads = {key for key in extra if key.endswith(HEADS)}
    assert {drop.leaf.key.text for drop in plan.dropped} == extra.keys() - heads
    compared = {read.leaf.key.text for step in plan.steps for read in reads(step.value)}
    assert heads <= compared  # with the embedding, before they are left out
    found = {step.leaf.key.text: [str(step.leaf.spec.dtype), *step.leaf.spec.shape] for step in plan.steps}
    assert found == {key: told[:-1] for key, told in model["tree"].items()}


def test_an_untied_head_stays(tmp_path: Path) -> None:
    """The config is believed, and `tied` before it."""
    model = recorded("gpt2", "GPT2LMHeadModel")
    arrays = weights(model["weights"]) | {"lm_head.weight": some(97, 12)}
    source = hf_model(tmp_path / "hf", arrays, model["config"] | {"tie_word_embeddings": False})
    applying.apply("@hf-to-flax", source, dst=tmp_path / "untied.msgpack")
    assert tree(tmp_path / "untied.msgpack")["lm_head/kernel"].shape == (12, 97)
    with pytest.raises(DataError, match="not the embedding"):
        applying.apply("@hf-to-flax", source, dst=tmp_path / "tied.msgpack", set=["tied=true"])
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]
    source = hf_model(tmp_path / "copy", arrays, model["config"] | {"tie_word_embeddings": False})
    applying.apply("@hf-to-flax", source, dst=tmp_path / "tied.msgpack", set=["tied=true"])
    assert descriptions(tree(tmp_path / "tied.msgpack")) == model["tree"]


def in_old_words(arrays: Arrays) -> dict[str, np.ndarray]:
    """As TensorFlow's BERT was converted: norms have gamma and beta."""
    renamed = {
        key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): array
        for key, array in arrays.items()
    }
    assert len(renamed.keys() - arrays.keys()) == 12
    return renamed


def bare(arrays: Arrays) -> dict[str, np.ndarray]:
    """A tower of CLIP without its name, as Transformers 5 saves it."""
    return {key.split(".", 1)[1]: array for key, array in arrays.items()}


TIED_ANYWAY = {"tie_word_embeddings": True, "scale_decoder_outputs": False}
"""What Transformers 5 says of models whose head is not tied."""


@pytest.mark.parametrize(
    ("case", "name", "found", "said"),
    [
        ("bert", "BertForPreTraining", in_old_words, {}),
        ("clip_vision_model", "CLIPVisionModel", bare, {}),
        ("clip_text_model", "CLIPTextModel", bare, {}),
        ("mt5", "MT5ForConditionalGeneration", dict, {"tie_word_embeddings": True}),
        ("t5_gated", "T5ForConditionalGeneration", dict, TIED_ANYWAY),
    ],
)
def test_files_in_another_form(
    tmp_path: Path, case: str, name: str, found: Any, said: dict[str, Any]
) -> None:
    model = recorded(case, name)
    source = hf_model(tmp_path / "hf", found(weights(model["weights"])), model["config"] | said)
    applying.apply("@hf-to-flax", source, dst=tmp_path / "flax_model.msgpack")
    assert descriptions(tree(tmp_path / "flax_model.msgpack")) == model["tree"]


def test_without_a_config_by_what_is_given(tmp_path: Path) -> None:
    model = recorded("llama", "LlamaForCausalLM")
    source = hf_model(tmp_path / "hf", weights(model["weights"]), None)
    given = ["model_type=llama", "num_layers=2"]
    applying.apply("@hf-to-flax", source, dst=tmp_path / "flax_model.msgpack", set=given)
    found = tree(tmp_path / "flax_model.msgpack")
    assert descriptions(found) == model["tree"], "an untied head, as is usual for a Llama"
    for given, says in (
        ([], "beside SRC, or say --set model_type=gpt2"),
        (["model_type=gpt2", "tied=no"], "tied is 'auto'"),
        (["model_type=llama", "num_layers=3"], "layers are missing"),
    ):
        fails(says, functools.partial(applying.plan, "@hf-to-flax", source, set=given))


def test_types_stay(tmp_path: Path) -> None:
    model = recorded("vit", "ViTForImageClassification")
    described = {key: ["bfloat16", *shape] for key, (_, *shape) in model["weights"].items()}
    source = hf_model(tmp_path / "hf", weights(described), model["config"])
    applying.apply("@hf-to-flax", source, dst=tmp_path / "flax_model.msgpack")
    assert {str(array.dtype) for array in tree(tmp_path / "flax_model.msgpack").values()} == {"bfloat16"}
    applying.apply("@flax-to-hf", tmp_path / "flax_model.msgpack", dst=tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert descriptions(back) == descriptions(weights(described))


def test_the_way_back_from_a_train_state(tmp_path: Path, save: Save) -> None:
    """Weights below `params/`, in another format."""
    model = recorded("gpt2", "GPT2LMHeadModel")
    arrays = weights(model["weights"])
    source = hf_model(tmp_path / "hf", arrays, model["config"])
    applying.apply("@hf-to-flax", source, dst=tmp_path / "flax_model.msgpack")
    params = serialization.msgpack_restore((tmp_path / "flax_model.msgpack").read_bytes())
    applying.apply("@flax-to-hf", save("state", {"params": params}), dst=tmp_path / "back")
    assert descriptions(load_file(tmp_path / "back" / "model.safetensors")) == descriptions(arrays)


# --- mistakes ------------------------------------------------------------------------------------------

GPT2: tuple[str, str] = ("gpt2", "GPT2LMHeadModel")
T5 = ("t5", "T5ForConditionalGeneration")
CLIP = ("clip", "CLIPModel")


def config_with(**entries: Any) -> Callable[[Any, dict[str, Any]], None]:
    return lambda arrays, config: config.update(entries)


def without(text: str) -> Callable[[dict[str, Any], Any], None]:
    """Without the keys that have this text."""

    def remove(arrays: dict[str, Any], config: Any) -> None:
        for key in [key for key in arrays if text in key]:
            del arrays[key]

    return remove


def plus(key: str) -> Callable[[dict[str, Any], Any], None]:
    return lambda arrays, config: arrays.update({key: some(3, 12)})


MISTAKES = [
    (GPT2, config_with(model_type="mamba"), "the model is mamba; this recipe is for models with Flax"),
    (GPT2, config_with(model_type=None), "put its config.json, which has a model_type, beside SRC"),
    (GPT2, config_with(quantization_config={"bits": 4}), "dequantize them first"),
    (GPT2, config_with(model_type="bert"), "no Flax class of bert has transformer"),
    (GPT2, plus("score.weight"), "no Flax class of gpt2 has score"),
    (GPT2, config_with(n_layer=3), "layers below transformer.h with attn.c_attn.bias: 2; layers are missing"),
    (GPT2, without("transformer.h.1.mlp.c_fc.bias"), "layers below transformer.h with mlp.c_fc.bias: 1;"),
    (T5, without("decoder.block.1."), "layers below decoder.block with layer.0.SelfAttention.k.weight: 2;"),
    (T5, config_with(num_layers=3), "layers below encoder.block with layer.0.SelfAttention.k.weight: 2;"),
    (
        CLIP,
        without("vision_model.encoder.layers.2."),
        "layers below vision_model.encoder.layers with layer_norm1.bias: 2;",
    ),
    (GPT2, plus("transformer.h.0.attn.rot"), "transformer.h.0.attn.rot"),
]


UNREAD = [
    ("llama", {"rope_theta": 500000.0}, "rotary embeddings of base 10000"),
    ("gemma", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rotary embeddings of base 10000"),
    ("mistral", {"rope_parameters": {"rope_type": "yarn"}}, "rotary embeddings of base 10000"),
    ("llama", {"head_dim": 8}, "has no head_dim of its own"),
    ("llama", {"tie_word_embeddings": True}, "has no tied head"),
    ("bert", {"position_embedding_type": "relative_key"}, "has absolute positions only"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scales attention as GPT-2 itself does"),
    ("marian", {"share_encoder_decoder_embeddings": False}, "shares embeddings"),
    ("opt", {"enable_bias": False}, "has biases and scales everywhere"),
    ("resnet", {"downsample_in_bottleneck": True}, "does not downsample in a bottleneck"),
]


@pytest.mark.parametrize(("case", "entries", "says"), UNREAD)
def test_what_flax_would_compute_differently_is_refused(case: str, entries: Any, says: str) -> None:
    model = recorded(case, first(case))
    leaves = {key: f"{dtype}{shape}".replace(" ", "") for key, (dtype, *shape) in model["weights"].items()}
    config = {**model["config"], **entries}
    fails(says, lambda: planned("hf-to-flax", leaves, config=config))
    plan = planned("hf-to-flax", leaves, config=config, overrides=["strict=false"])
    assert {step.leaf.key.text for step in plan.steps} - {"lm_head/kernel"} == model["tree"].keys() - {
        "lm_head/kernel"
    }


@pytest.mark.parametrize(("model", "mistake", "says"), MISTAKES)
def test_mistakes_are_refused(tmp_path: Path, model: tuple[str, str], mistake: Any, says: str) -> None:
    record = recorded(*model)
    arrays, config = weights(record["weights"]), dict(record["config"])
    mistake(arrays, config)
    source = hf_model(tmp_path / "hf", arrays, config)
    fails(says, lambda: applying.plan("@hf-to-flax", source))


def test_a_weight_that_no_class_has_is_refused_on_the_way_back(save: Save) -> None:
    source = save("state", {"params": {"a": {"kernel": some(2, 3)}}, "opt_state": {"mu": some(2)}})
    fails("opt_state/mu", lambda: applying.plan("@flax-to-hf", source))
