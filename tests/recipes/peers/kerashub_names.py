"""What the leaves of a Mixtral are called in KerasHub, which has them with the axes of the layout jax."""

OUTSIDE = {
    "params/token_embedder/embedding": "token_embedding/embeddings",
    "params/decoder/decoder_norm/scale": "sequence_output_layernorm/scale",
    "params/decoder/logits_dense/kernel": "token_embedding/reverse_embeddings",
}
LAYER = {
    "pre_self_attention_layer_norm/scale": "self_attention_layernorm/scale",
    "self_attention/query/kernel": "self_attention/query/kernel",
    "self_attention/key/kernel": "self_attention/key/kernel",
    "self_attention/value/kernel": "self_attention/value/kernel",
    "self_attention/out/kernel": "self_attention/attention_output/kernel",
    "post_self_attention_layer_norm/scale": "feedforward_layernorm/scale",
    "MoeBlock_0/gate/kernel": "mixtral_sparse_moe_block/sparse_feedforward_gate_dense/kernel",
    "MoeBlock_0/wi_0": "mixtral_sparse_moe_block/experts/expert_feedforward_gate_dense",
    "MoeBlock_0/wi_1": "mixtral_sparse_moe_block/experts/expert_feedforward_intermediate_dense",
    "MoeBlock_0/wo": "mixtral_sparse_moe_block/experts/expert_feedforward_output_dense",
}


def kerashub_names(layers: int) -> dict[str, str]:
    """The path of KerasHub's variable by the key of ours, of a model whose layers are one by one."""
    return OUTSIDE | {
        f"params/decoder/layers_{i}/{ours}": f"transformer_layer_{i}/{theirs}"
        for i in range(layers)
        for ours, theirs in LAYER.items()
    }
