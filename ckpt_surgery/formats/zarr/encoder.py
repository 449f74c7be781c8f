"""What a zarr group can hold."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.unsupported import (
    NOT_UNICODE,
    metadata_json,
    quoted,
    repeated_keys,
    wrong_dtypes,
    wrong_kinds,
)
from ckpt_surgery.formats.shared.zarr.files import check_reachable
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, RESERVED
from ckpt_surgery.formats.shared.zarr.metadata import EXTENDED, NATIVE
from ckpt_surgery.formats.shared.zarr.writing import adopted_metadata
from ckpt_surgery.storage.listing import real_path

NAME_BYTES = 255
"""Longest name of a directory that Linux's file systems allow."""
PATH_BYTES = 3072
"""Longest key. A quarter of what Linux allows for a path is left for the group's own path and chunk names."""
LOCK_SUFFIX = ".__lock"
"""Ending of the names that TensorStore keeps for itself."""
_HELD = frozenset(map(dtype_named, (*NATIVE, *EXTENDED)))


@dataclass(frozen=True)
class ZarrEncoder(Encoder):
    """Plain arrays, each in a directory of its own."""

    zarr: int
    """Version of the zarr specification: 2 or 3."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why a zarr group cannot hold these leaves, one sentence each; empty: it can."""
        return [
            *wrong_kinds(leaves, (LeafKind.STRING, LeafKind.PRNG_KEY), "zarr groups hold plain arrays"),
            *wrong_dtypes(leaves, _HELD, "zarr cannot store"),
            *self._wrong_paths(leaves),
            *repeated_keys(leaves),
        ]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether this version of zarr can describe these stored bytes."""
        return adopted_metadata(manifest, self.zarr) is not None

    def _wrong_paths(self, leaves: Sequence[Leaf]) -> Iterator[str]:
        for leaf in leaves:
            why = _no_path(leaf.key.text, self.zarr)
            if why is not None:
                yield f"{quoted(leaf)} {why}; rename it."


def _no_path(text: str, zarr: int) -> str | None:
    """Why a key cannot be a path of directories, as a predicate; None where it can."""
    if not is_unicode(text):
        return NOT_UNICODE
    if len(text.encode()) > PATH_BYTES:
        return f"has {len(text.encode())} bytes, too many for a path"
    reasons = (_no_name(name, zarr) for name in text.split(SEPARATOR))
    return next((reason for reason in reasons if reason is not None), None)


def _no_name(name: str, zarr: int) -> str | None:
    """Why a part of a key cannot be the name of a group or an array, as a predicate; None where it can."""
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


def zarr_encoder(options: SinkOptions) -> ZarrEncoder:
    """The encoder. Raises UsageError for a step, an item, an unknown zarr version, metadata not in JSON."""
    if options.zarr not in DRIVERS:
        raise UsageError(f"Not a version of zarr: {options.zarr}", hint="Use 2 or 3.")
    check_no_choice("zarr groups have", options.step, options.item, "dst_")
    metadata_json(options.metadata)
    return ZarrEncoder(options.zarr)


def check_destination(path: Path, options: SinkOptions) -> None:
    """Raises UsageError for a path that TensorStore takes for another one."""
    check_reachable(real_path(os.fspath(path)))
