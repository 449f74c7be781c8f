"""Leaves that an Orbax checkpoint can hold, and the place of its item."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder, EncoderDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.orbax.detect import check_holds_steps
from ckpt_surgery.formats.orbax.unsupported import unsupported
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zarr.described import adopted_metadata
from ckpt_surgery.formats.shared.zarr.files import check_reachable
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS
from ckpt_surgery.formats.unsupported import metadata_json
from ckpt_surgery.storage.listing import real_path

DEFAULT_ITEM = "default"


@dataclass(frozen=True)
class OrbaxEncoder(Encoder):
    """A tree of arrays, scalars, strings, PRNG keys and empty nodes."""

    zarr: int
    """Version of the zarr specification: 2 or 3."""
    details: EncoderDetails = field(default_factory=EncoderDetails)

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        return unsupported(leaves)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        return adopted_metadata(manifest, self.zarr) is not None


def encoder(options: SinkOptions) -> OrbaxEncoder:
    """The encoder. Raises UsageError for options that contradict each other or have invalid values."""
    if options.zarr not in DRIVERS:
        raise UsageError(f"Not a version of zarr: {options.zarr}", hint="Use 2 or 3.")
    if options.structure_file and options.zarr != 2:
        raise UsageError("A structure file is for arrays of zarr 2", hint="Say `zarr: 2`, or leave it out.")
    if options.step is not None and options.step < 0:
        raise UsageError(f"A step cannot be negative: {options.step}")
    item = options.item
    if item is not None and (not item or item in (".", "..") or "/" in item or "\0" in item):
        raise UsageError(f"`{shown(item)}` cannot be the name of an item", hint="Use a plain name.")
    metadata_json(options.metadata)
    details = EncoderDetails(
        links=True,
        holds_shardings=True,
        shards_in_stores=True,
        restorable_by=partial(restorable_by, structure_file=options.structure_file),
    )
    return OrbaxEncoder(options.zarr, details)


def check_destination(path: PathLike, options: SinkOptions) -> None:
    """Raises UsageError where a path cannot take a step, or TensorStore takes it for another path."""
    if options.step is not None:
        check_holds_steps(os.fspath(path), options.step)
    if urls.is_url(os.fspath(path)):
        return
    check_reachable(real_path(step_and_item(os.fspath(path), options)[1]))


def step_and_item(directory: str, options: SinkOptions) -> tuple[str, str]:
    """Paths, or URLs, of the step's and of the item's directory; equal if neither is named."""
    step = directory if options.step is None else f"{directory}/{options.step}"
    if options.step is None and options.item is None:
        return step, step
    return step, f"{step}/{options.item or DEFAULT_ITEM}"


# --- old versions of Orbax --------------------------------------------------------------------------------


ORBAX, TENSORSTORE = "orbax-checkpoint", "tensorstore"

WITHOUT_STRUCTURE, WITH_STRUCTURE = "0.5.21", "0.4.8"
"""Oldest versions without and with a structure file; versions before 0.4.8 miss some keys even with it."""
PRNG_KEYS = "0.11.9"
"""Oldest version that restores typed PRNG keys; earlier ones restored their numbers."""
OF_EMPTY: Mapping[str | None, str] = {"Tuple": "0.7.0", "NamedTuple": "0.10.2"}
"""Oldest versions that know these kinds of empty nodes; all versions know the others."""
OF_TYPES: Mapping[str, str] = {
    "int2": "0.1.75",
    "float8_e3m4": "0.1.75",
    "float4_e2m1fn": "0.1.80",
    "float8_e8m0fnu": "0.1.85",
}
"""Oldest versions of TensorStore that know these types; all versions know the others."""


def restorable_by(leaves: Sequence[Leaf], structure_file: bool) -> Mapping[str, str]:
    """The oldest version of each package that restores these leaves, by its name.

    Found by restoring with them, each with libraries of its time; docs/formats.md has the table. All of them
    read both versions of zarr, and every codec that is written.
    """
    dtypes = {leaf.spec.dtype for leaf in leaves if leaf.spec is not None}
    wanted = {
        ORBAX: {
            WITH_STRUCTURE if structure_file else WITHOUT_STRUCTURE,
            *(PRNG_KEYS for leaf in leaves if leaf.kind is LeafKind.PRNG_KEY),
            *_of(OF_EMPTY, {leaf.empty for leaf in leaves}),
        },
        TENSORSTORE: _of(OF_TYPES, {dtype.name for dtype in dtypes}),
    }
    return {package: max(versions, key=_ordered) for package, versions in wanted.items() if versions}


def _of(known: Mapping[Any, str], names: Iterable[object]) -> set[str]:
    return {known[name] for name in names if name in known}


def _ordered(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
