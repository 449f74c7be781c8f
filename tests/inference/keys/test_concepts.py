"""Meanings of the words in keys, with the names of published models."""

import pytest

from ckpt_surgery.inference.keys.concepts import meaning, synonyms

SAME = [
    ("model.layers.{}.self_attn.q_proj.weight", "params/layers/attention/query/kernel"),
    ("layers.{}.attention.wq.weight", "decoder/block_{}/attn/q_proj/kernel"),
    ("layers.{}.feed_forward.w1.weight", "layers_{}/mlp/wi_0/kernel"),
    ("layers.{}.feed_forward.w3.weight", "layers_{}/mlp/wi_1/kernel"),
    ("layers.{}.feed_forward.w2.weight", "layers_{}/mlp/wo/kernel"),
    ("h.{}.attn.c_proj.weight", "layers_{}/attention/out/kernel"),
    ("h.{}.mlp.c_proj.weight", "layers_{}/mlp/wo/kernel"),
    ("h.{}.ln_1.bias", "layers_{}/pre_attention_norm/bias"),
    ("model.layers.{}.input_layernorm.weight", "params/layers_{}/pre_self_attention_layer_norm/scale"),
    ("layer.{}.attention.output.LayerNorm.weight", "layer_{}/attention/output/LayerNorm/gamma"),
    ("wte.weight", "params/token_embedder/embedding"),
    ("model.norm.weight", "norm.weight"),
    ("bn.running_mean", "batch_stats/bn/mean"),
    ("optimizer.state.wte.exp_avg_sq", "opt_state/0/nu/wte/embedding"),
    ("encoder/block_{}/layer_000/SelfAttention/q", "encoder.block.{}.layer.0.SelfAttention.q.weight"),
    ("h.{}.mlp.c_fc.weight", "blocks.{}.mlp.0.weight"),
    ("lm_head.weight", "output.weight"),
    ("head/kernel/value", "head/kernel"),
]


@pytest.mark.each
@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_names_of_the_same_leaf(one: str, other: str) -> None:
    left, right = set(meaning(one).concepts), set(meaning(other).concepts)
    assert left ^ right <= {"decoder", "bert", "layer#0", "weight"}


@pytest.mark.parametrize("name", sorted(synonyms().keys() - {"exclusive", "together"}))
def test_no_phrase_means_two_things_in_one_table(name: str) -> None:
    lines = [line.split(":")[1].split(",") for line in synonyms()[name]]
    phrases = [phrase.strip() for line in lines for phrase in line]
    assert sorted(set(phrases)) == sorted(phrases)


@pytest.mark.parametrize("digits", ["²", "٣", "1" * 5000])
def test_digits_of_any_kind_and_number(digits: str) -> None:
    assert "gate" in meaning(f"mlp/{digits}/gate_proj/kernel").concepts
