"""Meanings of the words in keys, with the names of published models."""

import pytest

from ckpt_surgery.inference.keys.concepts import Rank, counted, meaning, synonyms

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


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_names_of_the_same_leaf(one: str, other: str) -> None:
    left, right = set(meaning(one).concepts), set(meaning(other).concepts)
    assert left - {"decoder", "bert", "layer#0"} == right - {"decoder", "bert", "layer#0"}


@pytest.mark.parametrize(
    ("text", "concepts"),
    [
        ("attn/v/kernel", ("attention", "value", "weight")),  # the value of an attention
        ("state/param_states/wte/v", ("state", "optimizer", "embedding", "token", "v", "weight")),  # of Adam
        ("mlp/gate/kernel", ("mlp", "gate", "router", "weight")),
        ("layers.{}.final_layer_norm.weight", ("layer", "norm", "between", "premlp", "weight")),  # Whisper's
        ("encoder.final_layer_norm.weight", ("encoder", "norm", "final", "weight")),
        ("layers.{}.norm.weight", ("layer", "norm", "somewhere", "weight")),
        ("größe", ("gr", "öße", "weight")),  # words without an entry are concepts
    ],
)
def test_concepts(text: str, concepts: tuple[str, ...]) -> None:
    assert set(meaning(text).concepts) == set(concepts)


def test_numbers_of_names_count_by_rank() -> None:
    def rank(before: str, number: int) -> Rank:
        among = {"conv": [1, 2], "Conv_": [0, 1], "LayerNorm_": [0, 2]}[before]
        return Rank(among.index(number), len(among), among[0])

    assert meaning("conv2.weight", rank).concepts == meaning("Conv_1/kernel", rank).concepts
    assert "before" in meaning("LayerNorm_0/scale", rank).concepts
    assert "between" in meaning("LayerNorm_2/scale", rank).concepts


@pytest.mark.parametrize(
    ("before", "what"),
    [("model.layers.", "layer"), ("blocks_", "layer"), ("mlp.experts.", "expert"), ("wi_", "up"), ("", "")],
)
def test_what_an_index_counts(before: str, what: str) -> None:
    assert counted(before) == what


@pytest.mark.parametrize("name", sorted(synonyms().keys() - {"exclusive", "together"}))
def test_no_phrase_means_two_things_in_one_table(name: str) -> None:
    lines = [line.split(":")[1].split(",") for line in synonyms()[name]]
    phrases = [phrase.strip() for line in lines for phrase in line]
    assert sorted(set(phrases)) == sorted(phrases)
