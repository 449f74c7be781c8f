"""The layout of an `.npz` file that is to be written: `.npy` files, not compressed, one after another.

Source of the format: `zip_writing`, `npy`, and what NumPy 2.4's `savez` writes and `load` reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.shared.npy import npy_header, npy_string
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.unsupported import metadata_json
from ckpt_surgery.formats.shared.zip.layout import MOST_COMMENT_BYTES
from ckpt_surgery.formats.shared.zip.writing import PlacedMember, placed


def member_name(text: str) -> bytes:
    """The name in the archive of the leaf with this key."""
    return (text + NPY_SUFFIX).encode()


def comment_of(metadata: Mapping[str, Any]) -> bytes:
    """The archive's comment, which holds the custom metadata as JSON. Raises UsageError."""
    if not metadata:
        return b""
    # Other characters are escaped, so that nothing in it looks like the end of an archive.
    comment = metadata_json(metadata).encode("ascii")
    if len(comment) > MOST_COMMENT_BYTES:
        raise UsageError(
            f"The custom metadata takes {len(comment)} bytes; an .npz file holds {MOST_COMMENT_BYTES}",
            hint="Choose another format.",
        )
    return comment


@dataclass(frozen=True)
class PlannedMember:
    """A member of the archive that is to be written, and what it holds."""

    text: str
    """Text of the leaf's key."""
    begin: bytes
    """The `.npy` file up to the elements of its array."""
    spec: ArraySpec | None
    """The array whose elements follow; None where `begin` is the whole `.npy` file."""
    place: PlacedMember
    """Where it lies."""


def members_of(leaves: Sequence[Leaf]) -> list[PlannedMember]:
    """One member after another, in the order of the leaves."""
    contents = [_content(leaf) for leaf in leaves]
    sizes = [len(begin) + (0 if spec is None else spec.nbytes) for begin, spec in contents]
    places = placed((member_name(leaf.key.text), size) for leaf, size in zip(leaves, sizes, strict=True))
    return [
        PlannedMember(leaf.key.text, begin, spec, place)
        for leaf, (begin, spec), place in zip(leaves, contents, places, strict=True)
    ]


def _content(leaf: Leaf) -> tuple[bytes, ArraySpec | None]:
    """The beginning of a leaf's `.npy` file, and the array that follows."""
    if leaf.string is not None:
        return npy_string(leaf.string), None
    assert leaf.spec is not None
    return npy_header(leaf.spec), leaf.spec
