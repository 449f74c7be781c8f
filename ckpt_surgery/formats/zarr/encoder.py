"""Leaves that a zarr group can hold."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.registry import Limits, SinkOptions
from ckpt_surgery.formats.shared.zarr.described import adopted_metadata
from ckpt_surgery.formats.shared.zarr.files import check_reachable
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, RESERVED
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from ckpt_surgery.formats.unsupported import NOT_UNICODE, LimitedEncoder, metadata_json, quoted, repeated_keys
from ckpt_surgery.storage.listing import real_path

NAME_BYTES = 255
"""Longest name of a directory that Linux's file systems allow."""
PATH_BYTES = 3072
"""Longest key. A quarter of what Linux allows for a path is left for the group's own path and chunk names."""
LOCK_SUFFIX = ".__lock"
"""Ending of the names that TensorStore keeps for itself."""


def _no_path(text: str, zarr: int) -> str | None:
    """Reason why a key cannot be a path of directories, as a predicate; None if it can."""
    if not is_unicode(text):
        return NOT_UNICODE
    if len(text.encode()) > PATH_BYTES:
        return f"has {len(text.encode())} bytes, too many for a path"
    reasons = (_no_name(name, zarr) for name in text.split(SEPARATOR))
    return next((reason for reason in reasons if reason is not None), None)


def _no_name(name: str, zarr: int) -> str | None:
    """Reason why part of a key cannot name a group or an array, as a predicate; None if it can."""
    part = f"`{shown(name[:50])}`"
    if not name:
        return "has an empty part, which cannot be a directory's name"
    if not name.strip(".") or set(name) & set("\0\\"):
        return f"has the part {part}, which cannot be the name of a zarr node"
    if name in RESERVED or name.endswith(LOCK_SUFFIX):
        return f"has the part {part}, which is the name of a file of zarr's or TensorStore's own"
    if zarr == 3 and name.startswith("__"):
        return f"has the part {part}, and zarr version 3 reserves names that begin with `__`"
    if len(name.encode()) > NAME_BYTES:
        return f"has the part {part}… of {len(name.encode())} bytes, and a name may have {NAME_BYTES}"
    return None


LIMITS = Limits(("zarr groups hold plain arrays", "zarr cannot store"), frozenset(map(dtype_named, HELD)))


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for an unknown zarr version, and metadata that is not JSON."""
    zarr = options.zarr
    if zarr not in DRIVERS:
        raise UsageError(f"Not a version of zarr: {zarr}", hint="Use 2 or 3.")
    metadata_json(options.metadata)
    return LimitedEncoder(
        replace(
            LIMITS,
            more=(partial(_wrong_paths, zarr), repeated_keys),
            adopts=lambda leaf, manifest: adopted_metadata(manifest, zarr) is not None,
        )
    )


def _wrong_paths(zarr: int, leaves: Sequence[Leaf]) -> Iterator[str]:
    for leaf in leaves:
        why = _no_path(leaf.key.text, zarr)
        if why is not None:
            yield f"{quoted(leaf)} {why}; rename it."


def check_destination(path: Path, options: SinkOptions) -> None:
    """Raises UsageError for a path that TensorStore takes for another one."""
    check_reachable(real_path(os.fspath(path)))
