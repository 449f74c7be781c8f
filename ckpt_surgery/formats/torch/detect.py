"""Which files a PyTorch checkpoint is: one, or the shards of a Hugging Face model with their index.

Source of the conventions: torch 2.13; transformers and diffusers for several files.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.zip_layout import first_name
from ckpt_surgery.storage.listing import entries, not_one, without_index

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
INDEX_SUFFIX = ".bin.index.json"
MODELS = ("pytorch_model", "diffusion_pytorch_model", "adapter_model")
"""What the files of models in directories are called, before `.bin`."""
_PART = re.compile(
    r"(data\.pkl|data/\d+|byteorder|constants\.pkl|\.format_version|\.data/serialization_id)\Z"
)
"""What the members of a file are called, below the prefix; any of them may come first."""
_SHARD = re.compile(rf"({'|'.join(MODELS)})-\d+-of-\d+\.bin\Z")


def detect(path: Path) -> bool:
    """Whether a path is a PyTorch zip file, an index of such, or a model's directory; damaged ones too."""
    try:
        if path.is_dir():
            names = [entry.name for entry in entries(os.fspath(path))]
            return bool(_wholes(names)) or any(map(_SHARD.match, names))
    except SourceError:
        return False
    first = first_name(os.fspath(path))
    if first is None:
        return path.name.endswith(INDEX_SUFFIX) and path.is_file()
    _, _, part = first.partition("/")
    return bool(_PART.match(part)) or (path.suffix in SUFFIXES and not first.endswith(".npy"))


def _wholes(names: Sequence[str]) -> list[str]:
    """Of the names in a directory those that stand for all of a model: files, and indexes of shards."""
    usual = [f"{model}{end}" for model in MODELS for end in (".bin", INDEX_SUFFIX)]
    return [name for name in usual if name in names]


def chosen(directory: str) -> str:
    """The name of the file or index in a directory that stands for all of it."""
    names = sorted(entry.name for entry in entries(directory))
    found = _wholes(names)
    if len(found) == 1:
        return found[0]
    shards = [name for name in names if _SHARD.match(name)]
    if shards and not found:
        raise without_index(directory, shards, f"{MODELS[0]}{INDEX_SUFFIX}")
    others = "" if found else f" of those that are called {MODELS[0]}.bin or the like"
    raise not_one(directory, f"PyTorch checkpoints{others}", found)
