"""Names of the config, tokenizer and processor files beside a checkpoint's weights."""

from fnmatch import fnmatchcase

KEPT = "ckpt_surgery.files"
"""Directory beside a record, in which formats without a place for such files keep those of their source."""
NAMES = (
    *("config.json", "generation_config.json", "tokenizer*.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab*.json", "vocab*.txt", "vocab.bpe", "merges.txt", "*.model", "*.tiktoken"),
    *("tekken.json", "normalizer.json", "chat_template*", "processor_config.json"),
    "*preprocessor_config.json",
)
"""Patterns of names, as Hugging Face's libraries write them; none of them is code."""


def is_companion(name: str) -> bool:
    """Whether a file in the directory of a checkpoint has such a name. A path with a directory has none."""
    weights = name.endswith((".safetensors", ".safetensors.index.json"))
    return "/" not in name and not weights and any(fnmatchcase(name, pattern) for pattern in NAMES)
