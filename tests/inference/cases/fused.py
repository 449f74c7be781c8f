"""Query, key and value in one matrix: GPT-2's three thirds, and Megatron's groups. NumPy alone."""

import numpy as np

from tests.recipes.decoder_layouts import Decoder

Arrays = dict[str, np.ndarray]


def gpt2(layers: int, embed: int) -> Arrays:
    """As OpenAI and Hugging Face store it: `Conv1D`, whose kernels are (in, out)."""
    random = np.random.default_rng(2)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    arrays = {"wte.weight": normal(50, embed)}
    for i in range(layers):
        arrays |= {f"h.{i}.ln_1.{name}": normal(embed) for name in ("weight", "bias")}
        for name, out in (("attn.c_attn", 3 * embed), ("attn.c_proj", embed), ("mlp.c_fc", 4 * embed)):
            arrays[f"h.{i}.{name}.weight"], arrays[f"h.{i}.{name}.bias"] = normal(embed, out), normal(out)
    return arrays


def gpt2_in_heads(source: Arrays, layers: int, embed: int, heads: int) -> Arrays:
    """With three kernels (embed, heads, head_dim) for query, key and value."""
    dim = embed // heads
    leaves = {"params/wte/embedding": source["wte.weight"]}
    for i in range(layers):
        theirs, ours = f"h.{i}.attn", f"params/h_{i}/attn"
        leaves[f"params/h_{i}/ln_1/scale"] = source[f"h.{i}.ln_1.weight"]
        leaves[f"params/h_{i}/ln_1/bias"] = source[f"h.{i}.ln_1.bias"]
        leaves[f"params/h_{i}/mlp/fc_in/kernel"] = source[f"h.{i}.mlp.c_fc.weight"]
        leaves[f"params/h_{i}/mlp/fc_in/bias"] = source[f"h.{i}.mlp.c_fc.bias"]
        for third, name in enumerate(("query", "key", "value")):
            kernel = np.empty((embed, heads, dim), np.float32)
            bias = np.empty((heads, dim), np.float32)
            for head in range(heads):
                start = third * embed + head * dim
                kernel[:, head] = source[f"{theirs}.c_attn.weight"][:, start : start + dim]
                bias[head] = source[f"{theirs}.c_attn.bias"][start : start + dim]
            leaves[f"{ours}/{name}/kernel"], leaves[f"{ours}/{name}/bias"] = kernel, bias
        leaves[f"{ours}/out/kernel"] = source[f"{theirs}.c_proj.weight"].reshape(heads, dim, embed)
        leaves[f"{ours}/out/bias"] = source[f"{theirs}.c_proj.bias"]
    return leaves


def megatron(d: Decoder, source: Arrays) -> Arrays:
    """Megatron's names for a Llama; a group has its queries, then its key and its value."""
    leaves = {
        "embedding.word_embeddings.weight": source["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": source["model.norm.weight"],
        "output_layer.weight": source["lm_head.weight"],
    }
    for i in range(d.layers):
        theirs = {key.removeprefix(f"model.layers.{i}."): array for key, array in source.items()}
        gate, up = theirs["mlp.gate_proj.weight"], theirs["mlp.up_proj.weight"]
        ours = {
            "self_attention.linear_qkv.weight": _grouped(d, theirs),
            "self_attention.linear_proj.weight": theirs["self_attn.o_proj.weight"],
            "self_attention.linear_qkv.layer_norm_weight": theirs["input_layernorm.weight"],
            "mlp.linear_fc1.layer_norm_weight": theirs["post_attention_layernorm.weight"],
            "mlp.linear_fc1.weight": np.concatenate([gate, up]),
            "mlp.linear_fc2.weight": theirs["mlp.down_proj.weight"],
        }
        leaves |= {f"decoder.layers.{i}.{name}": array for name, array in ours.items()}
    return leaves


def _grouped(d: Decoder, theirs: Arrays) -> np.ndarray:
    rows, each = [], d.heads // d.kv_heads
    for group in range(d.kv_heads):
        for name, heads in (("q", range(group * each, (group + 1) * each)), ("k", [group]), ("v", [group])):
            weight = theirs[f"self_attn.{name}_proj.weight"]
            rows += [weight[head * d.head_dim + j] for head in heads for j in range(d.head_dim)]
    return np.stack(rows)
