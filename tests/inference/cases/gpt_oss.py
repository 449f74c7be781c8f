"""gpt-oss: as Hugging Face stores it, and as two scanned stacks of every second layer. NumPy alone."""

from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Sizes:
    layers: int = 6
    experts: int = 4
    embed: int = 24
    mlp: int = 20
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 8
    vocab: int = 50


def hugging_face(s: Sizes) -> Arrays:
    """Gate and up of each expert lie in one array, their columns by turns."""
    random = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    leaves = {
        "model.embed_tokens.weight": normal(s.vocab, s.embed),
        "model.norm.weight": normal(s.embed),
        "lm_head.weight": normal(s.vocab, s.embed),
    }
    for i in range(s.layers):
        layer: Arrays = {}
        for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            layer[f"self_attn.{name}_proj.weight"] = normal(heads * s.head_dim, s.embed)
            layer[f"self_attn.{name}_proj.bias"] = normal(heads * s.head_dim)
        layer |= {
            "self_attn.o_proj.weight": normal(s.embed, s.heads * s.head_dim),
            "self_attn.o_proj.bias": normal(s.embed),
            "self_attn.sinks": normal(s.heads),
            "input_layernorm.weight": normal(s.embed),
            "post_attention_layernorm.weight": normal(s.embed),
            "mlp.router.weight": normal(s.experts, s.embed),
            "mlp.router.bias": normal(s.experts),
            "mlp.experts.gate_up_proj": normal(s.experts, s.embed, 2 * s.mlp),
            "mlp.experts.gate_up_proj_bias": normal(s.experts, 2 * s.mlp),
            "mlp.experts.down_proj": normal(s.experts, s.mlp, s.embed),
            "mlp.experts.down_proj_bias": normal(s.experts, s.embed),
        }
        leaves |= {f"model.layers.{i}.{name}": array for name, array in layer.items()}
    return leaves


def scanned(s: Sizes, source: Arrays) -> Arrays:
    """`layers_0` has the layers 0, 2, 4, …, `layers_1` the others; layers are the second axis."""
    leaves = {
        "params/token_embedder/embedding": source["model.embed_tokens.weight"],
        "params/decoder/decoder_norm/scale": source["model.norm.weight"],
        "params/decoder/logits_dense/kernel": source["lm_head.weight"].T,
    }
    for phase in range(2):
        layers = [_layer(s, source, i) for i in range(phase, s.layers, 2)]
        for name in layers[0]:
            whole = np.empty(
                (*layers[0][name].shape[:1], len(layers), *layers[0][name].shape[1:]), np.float32
            )
            for place, layer in enumerate(layers):
                whole[:, place] = layer[name]
            leaves[f"params/decoder/layers/layers_{phase}/{name}"] = whole
    return leaves


def _layer(s: Sizes, source: Arrays, i: int) -> Arrays:
    theirs = {key.removeprefix(f"model.layers.{i}."): array for key, array in source.items()}
    leaves: Arrays = {
        "GptOssAttention/out/kernel": theirs["self_attn.o_proj.weight"].T.reshape(
            s.heads, s.head_dim, s.embed
        ),
        "GptOssAttention/out/bias": theirs["self_attn.o_proj.bias"],
        "GptOssAttention/sinks": theirs["self_attn.sinks"],
        "pre_self_attention_layer_norm/scale": theirs["input_layernorm.weight"],
        "post_self_attention_layer_norm/scale": theirs["post_attention_layernorm.weight"],
        "GptOssMlp/gate/kernel": theirs["mlp.router.weight"].T,
        "GptOssMlp/gate/bias": theirs["mlp.router.bias"],
        "GptOssMlp/wo": theirs["mlp.experts.down_proj"],
        "GptOssMlp/wo_bias": theirs["mlp.experts.down_proj_bias"],
    }
    for ours, name, heads in (("query", "q", s.heads), ("key", "k", s.kv_heads), ("value", "v", s.kv_heads)):
        weight, bias = theirs[f"self_attn.{name}_proj.weight"], theirs[f"self_attn.{name}_proj.bias"]
        leaves[f"GptOssAttention/{ours}/kernel"] = weight.T.reshape(s.embed, heads, s.head_dim)
        leaves[f"GptOssAttention/{ours}/bias"] = bias.reshape(heads, s.head_dim)
    for turn in range(2):
        leaves[f"GptOssMlp/wi_{turn}"] = theirs["mlp.experts.gate_up_proj"][:, :, turn::2]
        leaves[f"GptOssMlp/wi_{turn}_bias"] = theirs["mlp.experts.gate_up_proj_bias"][:, turn::2]
    return leaves
