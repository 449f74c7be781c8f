"""The index beside the shards of a Hugging Face model: which file each tensor is in.

Source of the format: `*.index.json` as transformers 5.23.0 writes and reads it: `{"metadata": {"total_size":
bytes}, "weight_map": {tensor name: file name}}`, the same for all kinds of shards.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.registry import Listing
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.json_files import parse_object
from ckpt_surgery.storage.listing import check_link, names_in, real_path
from ckpt_surgery.storage.reading import read_file, stat_file
from ckpt_surgery.storage.views import prefetch

_SHARD = re.compile(r"(.*)-\d+-of-(\d+)(\.\w+)")
"""Start, number of files and suffix, which all shards of one checkpoint share."""


def read_sharded(directory: str, name: str, read: Callable[[str, str], Listing]) -> Listing:
    """All that an index and the files that it names hold, which must agree.

    `read`: lists one file, given by its directory and name. Of metadata, the first file's wins over all.
    Raises SourceError for links that leave the directory.
    """
    index = os.path.join(directory, name)
    files, metadata = read_index(index)
    names, root = sorted(set(files.values())), real_path(directory)
    for shard in names:
        check_link(os.path.join(directory, shard), root)
    prefetch(directory, names)
    shards = {shard: read(directory, shard) for shard in names}
    check_shards(directory, files, {shard: listing.leaves for shard, listing in shards.items()})
    listings = list(shards.values())
    return Listing(
        leaves={text: leaf for listing in listings for text, leaf in listing.leaves.items()},
        files={index: stat_file(index)}
        | {path: stat for one in listings for path, stat in one.files.items()},
        metadata={**metadata, **{k: v for one in reversed(listings) for k, v in one.metadata.items()}},
        readers={text: reader for listing in listings for text, reader in listing.readers.items()},
        decode=next((listing.decode for listing in listings), None),
    )


def read_index(path: str) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """Tensor name → file name, and the user's metadata."""
    text = read_file(path, 100_000_000)  # the limit of a safetensors header
    with with_path(path):
        document = parse_object(text, strict=True)
        files, metadata = document.get("weight_map"), document.get("metadata") or {}
        if not isinstance(files, dict) or not isinstance(metadata, dict):
            raise damaged("an index needs a `weight_map` from names to files")
        for name, target in files.items():
            if not isinstance(target, str) or target in ("", ".", "..") or set(target) & set("/\\\0"):
                place = f"`{shown(str(target)[:200])}`, which is not a plain file name"
                raise damaged(f"`{shown(name[:200])}` should be in {place}")
    # These describe the weights themselves; the rest is the user's.
    return files, {k: v for k, v in metadata.items() if k not in ("total_size", "total_parameters")}


def check_shards(directory: str, files: Mapping[str, str], held: Mapping[str, Iterable[str]]) -> None:
    """Raise SourceError where an index differs from its files' tensors (`held`), or lacks a shard."""
    placed = {(name, shard) for shard, names in held.items() for name in names}
    for name, shard in sorted(placed ^ set(files.items())):
        lies, said = "is not", "where the index places it"
        if (name, shard) in placed:
            lies, said = "is", "but the index places it elsewhere or not at all"
        where = shown(os.path.join(directory, shard))
        raise damaged(f"`{shown(name[:200])}` {lies} in {where}, {said}")
    sets = {match.groups() for match in map(_SHARD.fullmatch, held) if match}
    beside = ((name, _SHARD.fullmatch(name)) for name in names_in(directory) if name not in held)
    unlisted = [name for name, match in beside if match and match.groups() in sets]
    if unlisted:
        raise SourceError(
            f"the index in {shown(directory)} does not list {few(unlisted)}, which belong to the same shards",
            hint="Take another copy of the index, or move away what is left of another checkpoint.",
        )
