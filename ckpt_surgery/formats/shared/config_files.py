"""JSON files beside weights as Hugging Face's models have them: the config, and the index of shards."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.registry import Listing
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.json_files import parse_object
from ckpt_surgery.storage.listing import check_link, has_entry, is_directory, names_in, real_path
from ckpt_surgery.storage.reading import opened, read_file, stat_file
from ckpt_surgery.storage.views import prefetch

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
"""Config of an adapter that PEFT wrote, whose weights are in files that begin with `adapter_model`."""
_STEP = re.compile(r"(.*[_-])?[0-9]+")
"""Names of steps in the directory of a CheckpointManager."""
MAX_BYTES = 1 << 20
MAX_DEPTH = 64
_HINT = "Correct the file, or move it away: the recipe asks for it."


def config_place(path: str) -> str:
    """The path of the config of the checkpoint at `path`; there need not be one."""
    directory = path if is_directory(path) else os.path.dirname(path)
    if path != directory:
        adapter = os.path.basename(path).startswith("adapter_model")
    else:
        adapter = any(name.startswith("adapter_model.") for name in names_in(directory))
    name = ADAPTER_CONFIG if adapter else CONFIG
    places = [os.path.join(one, name) for one in (directory, *(_above(path) if path == directory else ()))]
    return next((place for place in places if has_entry(place)), places[0])


def _above(directory: str) -> Iterator[str]:
    """The directory that a checkpoint lies in; for a step, or an item of one, also the run and its directory.

    None for a directory of safetensors, which has its config inside.
    """
    if any(name.endswith(".safetensors") for name in names_in(directory)):
        return
    place = directory if urls.is_url(directory) else os.path.abspath(directory)
    for _ in range(3):  # from an item up to the directory that the run lies in
        place, name = os.path.split(place.rstrip("/"))
        if not name or not is_directory(place):
            return
        yield place if os.path.isabs(directory) or urls.is_url(directory) else os.path.relpath(place)
        if not (_STEP.fullmatch(name) or _STEP.fullmatch(os.path.basename(place))):
            return


def check_access(path: str) -> None:
    """Raise StorageError where there is a config beside the checkpoint at `path` that may not be read.

    What else is wrong with it matters only to those who ask for its values.
    """
    place = config_place(path)
    with contextlib.suppress(SourceError):
        if has_entry(place):
            with opened(place):
                pass


def read_config(path: str) -> tuple[str, dict[str, Any]] | None:
    """The name of the file beside the checkpoint at `path` and its JSON object; None where there is none."""
    place = config_place(path)
    return (os.path.basename(place), read_object(place)) if has_entry(place) else None


def read_object(place: str) -> dict[str, Any]:
    """The object in a file of strict JSON, which must be small and in its own directory."""
    check_link(place, real_path(os.path.dirname(place)))
    with opened(place) as file:
        if file.stat.size > MAX_BYTES:
            raise SourceError(f"{shown(place)} is larger than {MAX_BYTES >> 20} MiB", hint=_HINT)
        text = file.read(0, file.stat.size)
    with with_path(place):
        value = parse_object(text, strict=True, hint=_HINT)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):  # without recursion, which the file could exhaust
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    if level:
        raise SourceError(f"{shown(place)} is nested deeper than {MAX_DEPTH} levels", hint=_HINT)
    return value


_SHARD = re.compile(r"(.*)-\d+-of-(\d+)(\.\w+)")
"""Start, number of files and suffix, which all shards of one checkpoint share."""


def read_sharded(directory: str, name: str, read: Callable[[str, str], Listing]) -> Listing:
    """All that an index and the files that it names hold, which must agree.

    `read`: lists one file, given by its directory and name. Of metadata, the first file's wins over all.
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
    """Tensor name → file name, and the user's metadata.

    Source: `*.index.json` as transformers 5.23.0 has it for all kinds of shards: `{"metadata": {"total_size":
    bytes}, "weight_map": {tensor name: file name}}`.
    """
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
