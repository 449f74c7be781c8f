"""Tiny models of each kind that has Flax classes in transformers 4.53.3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """The classes of one model type, and the sizes of their tiny models."""

    config: str
    prefix: str
    """What the names of the Flax classes begin with."""
    classes: tuple[str, ...]
    """What they end with."""
    sizes: Mapping[str, Any]
    inputs: tuple[str, ...] = ("input_ids",)
    outputs: tuple[str, ...] = ()
    """Which outputs are recorded."""
    computed: str = "nothing"
    """Part of the names of weights that PyTorch saves and Flax computes; they are left out."""


def names(case: Case) -> list[str]:
    return [f"{case.prefix}{name}" for name in case.classes]


BERT = {
    "vocab_size": 97,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 30,
    "type_vocab_size": 2,
}
BERT_HEADS = (
    *("Model", "ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"),
    "ForQuestionAnswering",
)
BART = {
    "vocab_size": 97,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 28,
    "max_position_embeddings": 30,
}
BOTH = ("input_ids", "decoder_input_ids")
T5 = {
    "vocab_size": 97,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "decoder_start_token_id": 0,
}
LLAMA = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 30,
    "pad_token_id": 0,
}
VIT = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 14,
    "patch_size": 7,
}
TEXT = {"vocab_size": 97, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2}
TEXT |= {"num_attention_heads": 3, "max_position_embeddings": 14, "projection_dim": 10, "eos_token_id": 2}
VISION = {"hidden_size": 15, "intermediate_size": 22, "num_hidden_layers": 3, "num_attention_heads": 5}
VISION |= {"image_size": 14, "patch_size": 7, "projection_dim": 10}
WHISPER = {
    **{name: value for name, value in BART.items() if name != "max_position_embeddings"},
    "num_mel_bins": 6,
    "max_source_positions": 11,
    "max_target_positions": 17,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "begin_suppress_tokens": None,
    "classifier_proj_size": 7,
}
RESNET = {"embedding_size": 6, "hidden_sizes": [6, 10, 14], "depths": [1, 2, 1], "num_labels": 3}

CASES = {
    "gpt2": Case(
        *("GPT2Config", "FlaxGPT2", ("LMHeadModel", "Model")),
        {"vocab_size": 97, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 30},
        outputs=("logits",),
    ),
    "gpt2_untied": Case(
        *("GPT2Config", "FlaxGPT2", ("LMHeadModel",)),
        {
            "vocab_size": 97,
            "n_embd": 12,
            "n_layer": 2,
            "n_head": 3,
            "n_positions": 30,
            "tie_word_embeddings": False,
        },
    ),
    "bert": Case(
        *("BertConfig", "FlaxBert"),
        ("ForPreTraining", *BERT_HEADS, "ForNextSentencePrediction", "ForCausalLM"),
        BERT,
        outputs=("prediction_logits", "seq_relationship_logits"),
    ),
    "vit": Case(
        *("ViTConfig", "FlaxViT", ("ForImageClassification", "Model"), VIT),
        inputs=("pixel_values",),
        outputs=("logits",),
    ),
    "clip": Case(
        *("CLIPConfig", "FlaxCLIP", ("Model",)),
        {"text_config": TEXT, "vision_config": VISION, "projection_dim": 10},
        inputs=("input_ids", "pixel_values"),
        outputs=("logits_per_image",),
    ),
    "clip_text_model": Case("CLIPTextConfig", "FlaxCLIPText", ("ModelWithProjection", "Model"), TEXT),
    "clip_vision_model": Case(
        "CLIPVisionConfig", "FlaxCLIPVision", ("Model",), VISION, inputs=("pixel_values",)
    ),
    "whisper": Case(
        *("WhisperConfig", "FlaxWhisper", ("ForConditionalGeneration", "Model"), WHISPER),
        inputs=("input_features", "decoder_input_ids"),
        outputs=("logits",),
    ),
    "whisper_encoder": Case(
        "WhisperConfig", "FlaxWhisper", ("ForAudioClassification",), WHISPER, inputs=("input_features",)
    ),
    "t5": Case(
        *("T5Config", "FlaxT5", ("ForConditionalGeneration", "Model"), T5),
        inputs=BOTH,
        outputs=("logits",),
    ),
    "t5_gated": Case(
        *("T5Config", "FlaxT5", ("ForConditionalGeneration",)),
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        inputs=BOTH,
    ),
    "t5_encoder": Case("T5Config", "FlaxT5", ("EncoderModel",), T5),
    "mt5": Case(
        *("MT5Config", "FlaxMT5", ("ForConditionalGeneration", "Model")),
        {**T5, "tie_word_embeddings": False},
        inputs=BOTH,
    ),
    "longt5": Case("LongT5Config", "FlaxLongT5", ("ForConditionalGeneration", "Model"), T5, inputs=BOTH),
    "longt5_global": Case(
        *("LongT5Config", "FlaxLongT5", ("Model",)),
        {**T5, "encoder_attention_type": "transient-global"},
        inputs=BOTH,
    ),
    "llama": Case("LlamaConfig", "FlaxLlama", ("ForCausalLM", "Model"), LLAMA),
    "mistral": Case("MistralConfig", "FlaxMistral", ("ForCausalLM", "Model"), LLAMA),
    "gemma": Case("GemmaConfig", "FlaxGemma", ("ForCausalLM", "Model"), {**LLAMA, "head_dim": 6}),
    "roberta": Case("RobertaConfig", "FlaxRoberta", (*BERT_HEADS, "ForCausalLM"), BERT),
    "xlm-roberta": Case("XLMRobertaConfig", "FlaxXLMRoberta", (*BERT_HEADS, "ForCausalLM"), BERT),
    "roberta-prelayernorm": Case(
        "RobertaPreLayerNormConfig", "FlaxRobertaPreLayerNorm", (*BERT_HEADS, "ForCausalLM"), BERT
    ),
    "distilbert": Case(
        *("DistilBertConfig", "FlaxDistilBert", BERT_HEADS),
        {
            "vocab_size": 97,
            "dim": 12,
            "n_layers": 2,
            "n_heads": 3,
            "hidden_dim": 20,
            "max_position_embeddings": 30,
        },
    ),
    "electra": Case(
        *("ElectraConfig", "FlaxElectra", ("ForPreTraining", *BERT_HEADS, "ForCausalLM")),
        {**BERT, "embedding_size": 10},
        inputs=("input_ids", "token_type_ids"),  # Flax alone takes ones by default
    ),
    "albert": Case(
        *("AlbertConfig", "FlaxAlbert", ("ForPreTraining", *BERT_HEADS)),
        {**BERT, "embedding_size": 10, "num_hidden_groups": 1},
    ),
    "roformer": Case(
        "RoFormerConfig", "FlaxRoFormer", BERT_HEADS, {**BERT, "hidden_size": 24}, computed="embed_positions"
    ),
    "big_bird": Case(
        *("BigBirdConfig", "FlaxBigBird"),
        ("ForPreTraining", "Model", "ForSequenceClassification", "ForMultipleChoice", "ForQuestionAnswering"),
        {**BERT, "attention_type": "original_full"},
    ),
    "opt": Case(
        *("OPTConfig", "FlaxOPT", ("ForCausalLM", "Model")),
        {
            "vocab_size": 97,
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "ffn_dim": 20,
            "max_position_embeddings": 30,
            "word_embed_proj_dim": 10,
        },
    ),
    "gpt_neo": Case(
        *("GPTNeoConfig", "FlaxGPTNeo", ("ForCausalLM", "Model")),
        {
            "vocab_size": 97,
            "hidden_size": 12,
            "num_layers": 2,
            "num_heads": 3,
            "window_size": 5,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 30,
        },
    ),
    "gptj": Case(
        *("GPTJConfig", "FlaxGPTJ", ("ForCausalLM", "Model")),
        {
            "vocab_size": 97,
            "n_embd": 24,
            "n_layer": 2,
            "n_head": 3,
            "n_positions": 30,
            "rotary_dim": 4,
        },
    ),
    "bloom": Case(
        *("BloomConfig", "FlaxBloom", ("ForCausalLM", "Model")),
        {"vocab_size": 97, "hidden_size": 12, "n_layer": 2, "n_head": 4},
    ),
    "xglm": Case(
        *("XGLMConfig", "FlaxXGLM", ("ForCausalLM", "Model")),
        {
            "vocab_size": 97,
            "d_model": 12,
            "ffn_dim": 20,
            "num_layers": 2,
            "attention_heads": 3,
            "max_position_embeddings": 30,
        },
    ),
    "bart": Case(
        *("BartConfig", "FlaxBart"),
        ("ForConditionalGeneration", "Model", "ForSequenceClassification", "ForQuestionAnswering"),
        {**BART, "eos_token_id": 2},
        inputs=BOTH,
    ),
    "bart_decoder": Case("BartConfig", "FlaxBart", ("ForCausalLM",), BART),
    "mbart": Case(
        *("MBartConfig", "FlaxMBart"),
        ("ForConditionalGeneration", "Model", "ForSequenceClassification", "ForQuestionAnswering"),
        {**BART, "eos_token_id": 2},
        inputs=BOTH,
    ),
    "pegasus": Case(
        "PegasusConfig",
        "FlaxPegasus",
        ("ForConditionalGeneration", "Model"),
        BART,
        inputs=BOTH,
        computed="embed_positions",
    ),
    "marian": Case(
        *("MarianConfig", "FlaxMarian", ("MTModel", "Model")),
        {**BART, "pad_token_id": 0, "decoder_start_token_id": 0},
        inputs=BOTH,
        computed="embed_positions",
    ),
    "blenderbot": Case(
        "BlenderbotConfig", "FlaxBlenderbot", ("ForConditionalGeneration", "Model"), BART, inputs=BOTH
    ),
    "blenderbot-small": Case(
        *("BlenderbotSmallConfig", "FlaxBlenderbotSmall", ("ForConditionalGeneration", "Model"), BART),
        inputs=BOTH,
    ),
    "beit": Case(
        *("BeitConfig", "FlaxBeit", ("ForMaskedImageModeling", "ForImageClassification", "Model")),
        {**VIT, "vocab_size": 97, "use_relative_position_bias": True, "use_mask_token": True},
        inputs=("pixel_values",),
    ),
    "dinov2": Case(
        *("Dinov2Config", "FlaxDinov2", ("ForImageClassification", "Model")),
        {**{name: value for name, value in VIT.items() if name != "intermediate_size"}, "mlp_ratio": 2},
        inputs=("pixel_values",),
    ),
    "resnet": Case(
        *("ResNetConfig", "FlaxResNet", ("ForImageClassification", "Model"), RESNET),
        inputs=("pixel_values",),
    ),
    "regnet": Case(
        *("RegNetConfig", "FlaxRegNet", ("ForImageClassification", "Model")),
        {**RESNET, "hidden_sizes": [6, 12, 18], "groups_width": 6},
        inputs=("pixel_values",),
    ),
    "wav2vec2": Case(
        *("Wav2Vec2Config", "FlaxWav2Vec2", ("ForCTC", "ForPreTraining", "Model")),
        {
            **{name: value for name, value in BERT.items() if name != "type_vocab_size"},
            "conv_dim": (8, 8),
            "conv_stride": (3, 2),
            "conv_kernel": (5, 3),
            "conv_bias": True,
            "feat_extract_norm": "layer",
            "do_stable_layer_norm": True,
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "codevector_dim": 8,
            "proj_codevector_dim": 6,
            "num_codevectors_per_group": 5,
        },
        inputs=("input_values",),
    ),
}
