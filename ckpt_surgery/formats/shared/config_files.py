"""The JSON file beside a checkpoint that describes its model, as Hugging Face's models have one."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.json_files import parse_object
from ckpt_surgery.storage.listing import check_link, has_entry, is_directory, names_in, real_path
from ckpt_surgery.storage.reading import opened

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
