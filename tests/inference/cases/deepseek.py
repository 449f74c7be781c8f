"""DeepSeek-V3 as its published configuration says: 61 layers, the first 3 without experts, 256 experts."""

from collections.abc import Iterator

Shapes = dict[str, tuple[int, ...]]
LAYERS, DENSE, VOCAB = 61, 3, 129280
EMBED, MLP, EXPERT_MLP = 7168, 18432, 2048
HEADS, NOPE, ROPE, VALUE, QUERY_RANK, KV_RANK = 128, 128, 64, 128, 1536, 512

ATTENTION = {
    "q_a_proj": ("wq_a/kernel", (QUERY_RANK, EMBED), (EMBED, QUERY_RANK)),
    "q_a_layernorm": ("q_norm/scale", (QUERY_RANK,), (QUERY_RANK,)),
    "q_b_proj": ("wq_b/kernel", (HEADS * (NOPE + ROPE), QUERY_RANK), (QUERY_RANK, HEADS, NOPE + ROPE)),
    "kv_a_proj_with_mqa": ("wkv_a/kernel", (KV_RANK + ROPE, EMBED), (EMBED, KV_RANK + ROPE)),
    "kv_a_layernorm": ("kv_norm/scale", (KV_RANK,), (KV_RANK,)),
    "kv_b_proj": ("wkv_b/kernel", (HEADS * (NOPE + VALUE), KV_RANK), (KV_RANK, HEADS, NOPE + VALUE)),
    "o_proj": ("out/kernel", (EMBED, HEADS * VALUE), (HEADS, VALUE, EMBED)),
}
MATRICES = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}


def hugging_face(experts: int = 256) -> Shapes:
    """Names and shapes; 45,395 of them with all experts."""
    shapes: Shapes = {
        "model.embed_tokens.weight": (VOCAB, EMBED),
        "model.norm.weight": (EMBED,),
        "lm_head.weight": (VOCAB, EMBED),
    }
    for i in range(LAYERS):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in _layer(i, experts)}
        if i >= DENSE:
            shapes[f"model.layers.{i}.mlp.gate.e_score_correction_bias"] = (experts,)
    return shapes


def _layer(i: int, experts: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from (("input_layernorm", (EMBED,)), ("post_attention_layernorm", (EMBED,)))
    yield from ((f"self_attn.{name}", theirs) for name, (_, theirs, _) in ATTENTION.items())
    if i < DENSE:
        yield from ((f"mlp.{name}", _matrix(name, MLP)) for name in MATRICES)
        return
    yield "mlp.gate", (experts, EMBED)
    for expert in ("shared_experts", *(f"experts.{e}" for e in range(experts))):
        yield from ((f"mlp.{expert}.{name}", _matrix(name, EXPERT_MLP)) for name in MATRICES)


def _matrix(name: str, inner: int) -> tuple[int, int]:
    return (EMBED, inner) if name == "down_proj" else (inner, EMBED)


def scanned(experts: int = 256) -> Shapes:
    """Two stacks: the layers without experts, and those with."""
    shapes: Shapes = {
        "params/token_embedder/embedding": (VOCAB, EMBED),
        "params/decoder/decoder_norm/scale": (EMBED,),
        "params/decoder/logits_dense/kernel": (EMBED, VOCAB),
    }
    for stack, count in (("dense_layers", DENSE), ("moe_layers", LAYERS - DENSE)):
        layer: Shapes = {f"{which}_self_attention_layer_norm/scale": (EMBED,) for which in ("pre", "post")}
        layer |= {f"self_attention/{ours}": shape for ours, _, shape in ATTENTION.values()}
        if stack == "dense_layers":
            layer |= {f"mlp/{ours}/kernel": _matrix(name, MLP)[::-1] for name, ours in MATRICES.items()}
        else:
            layer |= {"moe_block/gate/kernel": (EMBED, experts), "moe_block/gate/bias": (experts,)}
            for name, ours in MATRICES.items():
                kernel = _matrix(name, EXPERT_MLP)[::-1]
                layer |= {f"moe_block/{ours}": (experts, *kernel), f"shared_experts/{ours}/kernel": kernel}
        shapes |= {f"params/decoder/{stack}/{name}": (count, *shape) for name, shape in layer.items()}
    return shapes
