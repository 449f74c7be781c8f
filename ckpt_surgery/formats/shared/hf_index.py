"""The index beside the shards of a Hugging Face model: which file each tensor is in.

Source of the format: `*.index.json` as transformers 5.23.0 writes and reads it: `{"metadata": {"total_size":
bytes}, "weight_map": {tensor name: file name}}`, the same for all kinds of shards.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.safetensors.header import strict_json
from ckpt_surgery.storage.listing import DAMAGED, about, check_link
from ckpt_surgery.storage.reading import opened

MOST_INDEX_BYTES = 100_000_000
"""As many as the header of a safetensors file may have."""
COUNTED = ("total_size", "total_parameters")
"""What an index counts; the rest of its metadata is the user's."""


def read_index(path: str) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """Tensor name → file name, and the user's metadata. Raises SourceError."""
    with opened(path) as file:
        if file.stat.size > MOST_INDEX_BYTES:
            raise SourceError(
                f"{shown(path)} has {file.stat.size} bytes, too many for an index", hint=DAMAGED
            )
        text = file.read(0, file.stat.size)
    with about(path):
        document = strict_json(text)
        files, metadata = document.get("weight_map"), document.get("metadata") or {}
        if not isinstance(files, dict) or not isinstance(metadata, dict):
            raise SourceError("an index needs a `weight_map` from names to files", hint=DAMAGED)
        for name, target in files.items():
            _check_plain(name, target)
    return files, {k: v for k, v in metadata.items() if k not in COUNTED}


def _check_plain(name: str, target: Any) -> None:
    plain = isinstance(target, str) and target not in ("", ".", "..") and not set(target) & set("/\\\0")
    if not plain:
        told = shown(str(target)[:200])
        raise SourceError(
            f"`{shown(name[:200])}` is said to be in `{told}`, which is no plain file name", hint=DAMAGED
        )


def shard_names(directory: str, files: Mapping[str, str]) -> list[str]:
    """Every file that an index names, sorted. Raises SourceError for links that leave the directory."""
    names, root = sorted(set(files.values())), os.path.realpath(directory)
    for name in names:
        check_link(os.path.join(directory, name), root)
    return names


def check_shards(directory: str, files: Mapping[str, str], held: Mapping[str, Iterable[str]]) -> None:
    """Raises SourceError where an index and what its files hold differ. `held`: file → tensor names."""
    found = set()
    for shard, names in held.items():
        for name in names:
            found.add(name)
            if files.get(name) != shard:
                raise SourceError(
                    f"{shown(os.path.join(directory, shard))} holds `{shown(name[:200])}`, "
                    "which the index has elsewhere or not at all",
                    hint=DAMAGED,
                )
    for name, target in files.items():
        if name not in found:
            raise SourceError(
                f"`{shown(name[:200])}` is not in {shown(os.path.join(directory, target))}, "
                "where the index has it",
                hint=DAMAGED,
            )
