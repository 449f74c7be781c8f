"""The sizes of published models, as their config.json files have them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """A published model: how the library that its files are for makes it."""

    config: str
    """The library's class of the config, without `Config`."""
    model: str
    """Class of the model that the files hold."""
    sizes: Mapping[str, Any]
    """What differs from the defaults of the config."""
    dtype: str = "bfloat16"
    """The dtype of the weights."""
    quantized: str = ""
    """How the weights are quantized: `mxfp4`, `fp8` or not at all."""
    old_names: Mapping[str, str] = field(default_factory=dict)
    """Ends or parts of names that the published files have in an older form."""
    more: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Dtype and shape of what the published files hold besides: buffers of older versions of the library."""

    def renamed(self, name: str) -> str:
        """A name as the published files have it."""
        for new, old in self.old_names.items():
            name = name.replace(new, old)
        return name


DECODER = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)


def _decoder(*sizes: int, **more: Any) -> Mapping[str, Any]:
    """The sizes of DECODER, in this order, and others."""
    return dict(zip(DECODER, sizes, strict=True)) | {"tie_word_embeddings": False} | more


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _llama(*sizes: int, scaled: bool = True, **more: Any) -> Published:
    rope: Mapping[str, Any] = LLAMA3_ROPE if scaled else {"rope_type": "default", "rope_theta": 500000.0}
    given = _decoder(*sizes, 128256, rope_parameters=rope, max_position_embeddings=131072, **more)
    return Published("Llama", "LlamaForCausalLM", given)


def _based(theta: float) -> Mapping[str, Any]:
    """Later Mistrals: another base of rotary embeddings, and no window."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}, "sliding_window": None}


def _llama2(*sizes: int) -> Published:
    return Published("Llama", "LlamaForCausalLM", _decoder(*sizes, 32000))


def _of(family: str) -> Any:
    def made(*sizes: int, **more: Any) -> Published:
        return Published(family, f"{family}ForCausalLM", _decoder(*sizes, **more))

    return made


_mistral, _mixtral, _qwen2, _qwen3, _qwen3_moe, _gemma, _gemma2 = map(
    _of, ("Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe", "Gemma", "Gemma2")
)


def _gemma3_text(*sizes: int, **more: Any) -> Mapping[str, Any]:
    return {**_decoder(*sizes, 262208, **more), "tie_word_embeddings": True}


def _gemma3(*sizes: int, **more: Any) -> Published:
    vision = {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "patch_size": 14,
        "image_size": 896,
        "vision_use_head": False,
    }
    text = _gemma3_text(*sizes, **more)
    return Published(
        "Gemma3",
        "Gemma3ForConditionalGeneration",
        {"text_config": text, "vision_config": vision},
        old_names={"vision_tower.": "vision_tower.vision_model."},
    )


def _llama4(experts: int, interleave: int) -> Published:
    text = {
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "vocab_size": 202048,
        "num_local_experts": experts,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": interleave,
        "use_qk_norm": interleave == 1,
        "tie_word_embeddings": False,
    }
    vision = {
        "hidden_size": 1408,
        "intermediate_size": 5632,
        "num_hidden_layers": 34,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
        "vision_output_dim": 4096,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
    }
    return Published(
        "Llama4", "Llama4ForConditionalGeneration", {"text_config": text, "vision_config": vision}
    )


def _gpt_oss(layers: int, experts: int, quantized: str) -> Published:
    sizes = {"num_hidden_layers": layers, "num_local_experts": experts}
    return Published("GptOss", "GptOssForCausalLM", sizes, quantized=quantized)


def _gpt2(layers: int, embed: int, heads: int) -> Published:
    """The files are of the model without its head, which is tied, and hold the masks of attention."""
    return Published(
        "GPT2",
        "GPT2Model",
        {"n_layer": layers, "n_embd": embed, "n_head": heads},
        "float32",
        more={f"h.{i}.attn.bias": ("float32", (1, 1, 1024, 1024)) for i in range(layers)},
    )


def _bert(layers: int, hidden: int, heads: int, vocab: int) -> Published:
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": vocab,
    }
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return Published("Bert", "BertForPreTraining", sizes, "float32", old_names=names)


def _vit(layers: int, hidden: int, heads: int, patch: int, model: str) -> Published:
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "patch_size": patch,
    }
    labels = {"num_labels": 1000} if model == "ViTForImageClassification" else {}
    return Published("ViT", model, sizes | labels, "float32")


def _clip(layers: int, width: int, text: int, patch: int, image: int = 224) -> Published:
    sizes = {
        "text_config": {
            "hidden_size": text,
            "intermediate_size": 4 * text,
            "num_attention_heads": text // 64,
        },
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": width // 64,
            "patch_size": patch,
            "image_size": image,
        },
        "projection_dim": text,
    }
    patches = (image // patch) ** 2
    more = {
        "text_model.embeddings.position_ids": ("int64", (1, 77)),
        "vision_model.embeddings.position_ids": ("int64", (1, patches + 1)),
    }
    return Published("CLIP", "CLIPModel", sizes, "float32", more=more)


def _whisper(layers: int, width: int, decoders: int = 0, **more: Any) -> Published:
    sizes = {
        "encoder_layers": layers,
        "decoder_layers": decoders or layers,
        "d_model": width,
        "encoder_attention_heads": width // 64,
        "decoder_attention_heads": width // 64,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
    }
    return Published("Whisper", "WhisperForConditionalGeneration", {**sizes, **more}, "float32")


def _t5(layers: int, width: int, heads: int, kv: int, mlp: int, **more: Any) -> Published:
    sizes = {"num_layers": layers, "d_model": width, "num_heads": heads, "d_kv": kv, "d_ff": mlp, **more}
    return Published("T5", "T5ForConditionalGeneration", sizes, "float32")


GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
"""What T5 1.1, and Flan-T5 with the same sizes, have."""
LARGE_WHISPER = {"vocab_size": 51866, "num_mel_bins": 128}

PUBLISHED: Mapping[str, Published] = {
    "llama2-7b": _llama2(32, 4096, 32, 32, 11008),
    "llama2-13b": _llama2(40, 5120, 40, 40, 13824),
    "llama2-70b": _llama2(80, 8192, 64, 8, 28672),
    "llama3-8b": _llama(32, 4096, 32, 8, 14336, scaled=False),
    "llama3-70b": _llama(80, 8192, 64, 8, 28672, scaled=False),
    "llama3.1-8b": _llama(32, 4096, 32, 8, 14336),
    "llama3.1-70b": _llama(80, 8192, 64, 8, 28672),
    "llama3.1-405b": _llama(126, 16384, 128, 8, 53248),
    "llama3.2-1b": _llama(16, 2048, 32, 8, 8192, head_dim=64, tie_word_embeddings=True),
    "llama3.2-3b": _llama(28, 3072, 24, 8, 8192, head_dim=128, tie_word_embeddings=True),
    "llama3.3-70b": _llama(80, 8192, 64, 8, 28672),
    "llama4-scout": _llama4(16, 1),
    "llama4-maverick": _llama4(128, 2),
    "mistral-7b-v0.1": _mistral(32, 4096, 32, 8, 14336, 32000),
    "mistral-7b-v0.3": _mistral(32, 4096, 32, 8, 14336, 32768, **_based(1e6)),
    "mistral-nemo-12b": _mistral(40, 5120, 32, 8, 14336, 131072, head_dim=128, **_based(1e6)),
    "mistral-small-24b": _mistral(40, 5120, 32, 8, 32768, 131072, head_dim=128, **_based(1e8)),
    "mixtral-8x7b": _mixtral(32, 4096, 32, 8, 14336, 32000, num_local_experts=8),
    "mixtral-8x22b": _mixtral(56, 6144, 48, 8, 16384, 32768, num_local_experts=8),
    "qwen2-0.5b": _qwen2(24, 896, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2-1.5b": _qwen2(28, 1536, 12, 2, 8960, 151936, tie_word_embeddings=True),
    "qwen2-7b": _qwen2(28, 3584, 28, 4, 18944, 152064),
    "qwen2-72b": _qwen2(80, 8192, 64, 8, 29568, 152064),
    "qwen2.5-0.5b": _qwen2(24, 896, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2.5-1.5b": _qwen2(28, 1536, 12, 2, 8960, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": _qwen2(28, 3584, 28, 4, 18944, 152064),
    "qwen2.5-3b": _qwen2(36, 2048, 16, 2, 11008, 151936, tie_word_embeddings=True),
    "qwen2.5-14b": _qwen2(48, 5120, 40, 8, 13824, 152064),
    "qwen2.5-32b": _qwen2(64, 5120, 40, 8, 27648, 152064),
    "qwen2.5-72b": _qwen2(80, 8192, 64, 8, 29568, 152064),
    "qwen3-0.6b": _qwen3(28, 1024, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True),
    "qwen3-1.7b": _qwen3(28, 2048, 16, 8, 6144, 151936, head_dim=128, tie_word_embeddings=True),
    "qwen3-4b": _qwen3(36, 2560, 32, 8, 9728, 151936, head_dim=128, tie_word_embeddings=True),
    "qwen3-8b": _qwen3(36, 4096, 32, 8, 12288, 151936, head_dim=128),
    "qwen3-14b": _qwen3(40, 5120, 40, 8, 17408, 151936, head_dim=128),
    "qwen3-32b": _qwen3(64, 5120, 64, 8, 25600, 151936, head_dim=128),
    "qwen3-30b-a3b": _qwen3_moe(
        48, 2048, 32, 4, 6144, 151936, head_dim=128, num_experts=128, moe_intermediate_size=768
    ),
    "qwen3-235b-a22b": _qwen3_moe(
        94, 4096, 64, 4, 12288, 151936, head_dim=128, num_experts=128, moe_intermediate_size=1536
    ),
    "gemma-2b": _gemma(18, 2048, 8, 1, 16384, 256000, head_dim=256, tie_word_embeddings=True),
    "gemma-7b": _gemma(28, 3072, 16, 16, 24576, 256000, head_dim=256, tie_word_embeddings=True),
    "gemma2-2b": _gemma2(26, 2304, 8, 4, 9216, 256000, head_dim=256, tie_word_embeddings=True),
    "gemma2-9b": _gemma2(42, 3584, 16, 8, 14336, 256000, head_dim=256, tie_word_embeddings=True),
    "gemma2-27b": _gemma2(
        46, 4608, 32, 16, 36864, 256000, head_dim=128, query_pre_attn_scalar=144, tie_word_embeddings=True
    ),
    "gemma3-270m": Published(
        "Gemma3Text",
        "Gemma3ForCausalLM",
        {**_gemma3_text(18, 640, 4, 1, 2048, head_dim=256), "vocab_size": 262144},
    ),
    "gemma3-1b": Published(
        "Gemma3Text",
        "Gemma3ForCausalLM",
        {**_gemma3_text(26, 1152, 4, 1, 6912, head_dim=256), "vocab_size": 262144},
    ),
    "gemma3-4b": _gemma3(34, 2560, 8, 4, 10240, head_dim=256),
    "gemma3-12b": _gemma3(48, 3840, 16, 8, 15360, head_dim=256),
    "gemma3-27b": _gemma3(62, 5376, 32, 16, 21504, head_dim=128, query_pre_attn_scalar=168),
    "gpt-oss-20b": _gpt_oss(24, 32, "mxfp4"),
    "gpt-oss-120b": _gpt_oss(36, 128, "mxfp4"),
    "gpt-oss-20b-bf16": _gpt_oss(24, 32, ""),
    "deepseek-v3": Published("DeepseekV3", "DeepseekV3ForCausalLM", {}, quantized="fp8"),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "bert-base-uncased": _bert(12, 768, 12, 30522),
    "bert-base-cased": _bert(12, 768, 12, 28996),
    "bert-large-uncased": _bert(24, 1024, 16, 30522),
    "vit-base-patch16-224": _vit(12, 768, 12, 16, "ViTForImageClassification"),
    "vit-large-patch16-224": _vit(24, 1024, 16, 16, "ViTForImageClassification"),
    "vit-huge-patch14-224-in21k": _vit(32, 1280, 16, 14, "ViTModel"),
    "clip-vit-base-patch32": _clip(12, 768, 512, 32),
    "clip-vit-base-patch16": _clip(12, 768, 512, 16),
    "clip-vit-large-patch14": _clip(24, 1024, 768, 14),
    "clip-vit-large-patch14-336": _clip(24, 1024, 768, 14, 336),
    "whisper-tiny": _whisper(4, 384),
    "whisper-base": _whisper(6, 512),
    "whisper-small": _whisper(12, 768),
    "whisper-medium": _whisper(24, 1024),
    "whisper-large-v2": _whisper(32, 1280),
    "whisper-large-v3": _whisper(32, 1280, **LARGE_WHISPER),
    "whisper-large-v3-turbo": _whisper(32, 1280, 4, **LARGE_WHISPER),
    "t5-small": _t5(6, 512, 8, 64, 2048),
    "t5-base": _t5(12, 768, 12, 64, 3072),
    "t5-large": _t5(24, 1024, 16, 64, 4096),
    "t5-3b": _t5(24, 1024, 32, 128, 16384),
    "t5-11b": _t5(24, 1024, 128, 128, 65536),
    "t5-1.1-small": _t5(8, 512, 6, 64, 1024, **GATED),
    "t5-1.1-base": _t5(12, 768, 12, 64, 2048, **GATED),
    "t5-1.1-large": _t5(24, 1024, 16, 64, 2816, **GATED),
    "t5-1.1-xl": _t5(24, 2048, 32, 64, 5120, **GATED),
    "t5-1.1-xxl": _t5(24, 4096, 64, 64, 10240, **GATED),
}
