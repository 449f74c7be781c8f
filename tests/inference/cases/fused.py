"""Query, key and value in one matrix: GPT-2's three thirds, and Megatron's groups. NumPy alone."""

import numpy as np

from tests.recipes.decoder_layouts import Decoder

Arrays = dict[str, np.ndarray]


def gpt2(layers: int, embed: int, vocab: int = 50, places: int = 16) -> Arrays:
    """As OpenAI and Hugging Face store it: `Conv1D`, whose kernels are (in, out)."""
    random = np.random.default_rng(2)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    arrays = {"wte.weight": normal(vocab, embed), "wpe.weight": normal(places, embed)}
    arrays |= {"ln_f.weight": normal(embed), "ln_f.bias": normal(embed)}
    for i in range(layers):
        for norm in ("ln_1", "ln_2"):
            arrays[f"h.{i}.{norm}.weight"], arrays[f"h.{i}.{norm}.bias"] = normal(embed), normal(embed)
        for name, size, out in (
            ("attn.c_attn", embed, 3 * embed),
            ("attn.c_proj", embed, embed),
            ("mlp.c_fc", embed, 4 * embed),
            ("mlp.c_proj", 4 * embed, embed),
        ):
            arrays[f"h.{i}.{name}.weight"], arrays[f"h.{i}.{name}.bias"] = normal(size, out), normal(out)
    return arrays


def gpt2_in_heads(source: Arrays, layers: int, embed: int, heads: int) -> Arrays:
    """With three kernels (embed, heads, head_dim) for query, key and value."""
    dim = embed // heads
    leaves = {
        "params/wte/embedding": source["wte.weight"],
        "params/wpe/embedding": source["wpe.weight"],
        "params/ln_f/scale": source["ln_f.weight"],
        "params/ln_f/bias": source["ln_f.bias"],
    }
    for i in range(layers):
        theirs = {key.removeprefix(f"h.{i}."): array for key, array in source.items()}
        ours: Arrays = {}
        for norm in ("ln_1", "ln_2"):
            ours[f"{norm}/scale"], ours[f"{norm}/bias"] = theirs[f"{norm}.weight"], theirs[f"{norm}.bias"]
        for third, name in enumerate(("query", "key", "value")):
            kernel = np.empty((embed, heads, dim), np.float32)
            bias = np.empty((heads, dim), np.float32)
            for head in range(heads):
                start = third * embed + head * dim
                kernel[:, head] = theirs["attn.c_attn.weight"][:, start : start + dim]
                bias[head] = theirs["attn.c_attn.bias"][start : start + dim]
            ours[f"attn/{name}/kernel"], ours[f"attn/{name}/bias"] = kernel, bias
        ours["attn/out/kernel"] = theirs["attn.c_proj.weight"].reshape(heads, dim, embed)
        ours["attn/out/bias"] = theirs["attn.c_proj.bias"]
        for name, of in (("fc_in", "mlp.c_fc"), ("fc_out", "mlp.c_proj")):
            ours[f"mlp/{name}/kernel"], ours[f"mlp/{name}/bias"] = (
                theirs[f"{of}.weight"],
                theirs[f"{of}.bias"],
            )
        leaves |= {f"params/h_{i}/{name}": array for name, array in ours.items()}
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
