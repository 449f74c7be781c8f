"""The oldest versions of Orbax and TensorStore that restore what is written.

Found by restoring with them, each with libraries of its time; docs/formats.md has the table.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_surgery.core.leaves import Leaf, LeafKind

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


def restorable_by(leaves: Iterable[Leaf], structure_file: bool) -> Mapping[str, str]:
    """The oldest version of each package that restores these leaves, by its name.

    All of them read both versions of zarr, and every codec that is written.
    """
    listed = list(leaves)
    dtypes = {leaf.spec.dtype for leaf in listed if leaf.spec is not None}
    wanted = {
        ORBAX: {
            WITH_STRUCTURE if structure_file else WITHOUT_STRUCTURE,
            *(PRNG_KEYS for leaf in listed if leaf.kind is LeafKind.PRNG_KEY),
            *_of(OF_EMPTY, {leaf.empty for leaf in listed}),
        },
        TENSORSTORE: _of(OF_TYPES, {dtype.name for dtype in dtypes}),
    }
    return {package: max(versions, key=_ordered) for package, versions in wanted.items() if versions}


def _of(known: Mapping[Any, str], found: Iterable[object]) -> set[str]:
    return {known[name] for name in found if name in known}


def _ordered(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
