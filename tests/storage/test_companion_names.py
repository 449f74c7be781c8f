"""Which files are a model's config, tokenizer or processors."""

from ckpt_surgery.storage.record_files import is_companion

COMPANIONS = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja"),
    *("chat_template.json", "preprocessor_config.json", "video_preprocessor_config.json"),
    *("processor_config.json", "qwen.tiktoken", "tekken.json", "normalizer.json", "vocab.bpe"),
)
OTHERS = (
    *("model.safetensors", "model.safetensors.index.json", "vocab.safetensors"),
    *("tokenizer.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"),
    *("ckpt_surgery.json", "modeling_x.py", "tokenization_x.py", "README.md", "LICENSE"),
    *("adapter_config.json", "training_args.bin", "original/config.json", "Config.json"),
)


def test_config_tokenizer_and_processors_are_and_weights_code_and_all_else_are_not() -> None:
    assert [name for name in (*COMPANIONS, *OTHERS) if is_companion(name)] == [*COMPANIONS]
