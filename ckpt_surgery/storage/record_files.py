"""The file with the record of how a checkpoint was made, in its directory or beside its only file."""

import os
from fnmatch import fnmatchcase
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.protocols import Source, details_of
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import exists, is_directory
from ckpt_surgery.storage.reading import read_file
from ckpt_surgery.storage.store import store_of

RECORD_NAME = "ckpt_surgery.json"
"""Name of the record: a file, or an entry among the metadata of a format with a place for it."""


def beside(path: Path) -> Path:
    """The record beside a checkpoint whose format has no place for it."""
    return path.with_name(f"{path.name}.{RECORD_NAME}")


def beside_text(path: str) -> str:
    """The same of a path or URL as text."""
    return f"{path}.{RECORD_NAME}" if urls.is_url(path) else os.fspath(beside(Path(path)))


def record_file(path: str) -> str:
    """Path of the record of a checkpoint that has none inside a file: in its directory, or beside it."""
    within = os.path.join(path, RECORD_NAME)
    return within if is_directory(path) and exists(within) else beside_text(path)


def record_path(source: Source) -> str:
    """Path of the record of an opened checkpoint, if it is a file of its own."""
    return details_of(source).record_file or record_file(source.path)


def read_record_of(source: Source) -> str | None:
    """The text of the record of an opened checkpoint; None where it has none."""
    details = details_of(source)
    text = details.record if details.record_file is None else read_record(details.record_file)
    return read_record(record_file(source.path)) if text is None else text


def read_record(file: str) -> str | None:
    """The text of a record; None where there is no such file."""
    return read_file(file).decode("utf-8", "replace") if exists(file) else None


def put_record(place: PathLike, text: str) -> None:
    """Write a record, in place of the one that is there: at every moment there is one of the two, whole."""
    if urls.is_url(url := os.fspath(place)):
        store, name = store_of(url)
        store.put(name, text.encode("ascii"))
        return
    file = Path(place)
    unfinished = file.with_name(f"{file.name}.tmp")
    with storage_errors(file):
        with open(unfinished, "w", encoding="ascii") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        os.replace(unfinished, file)


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
