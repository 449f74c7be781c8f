"""The layout of an `.npz` file that is to be written: `.npy` files, not compressed, one after another.

Source of the format: `zip.layout`, `npy`, and what NumPy 2.4's `savez` writes and `load` reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.registry import FilePlan, SinkOptions
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX, npy_header, npy_string
from ckpt_surgery.formats.shared.zip.layout import MOST_COMMENT_BYTES
from ckpt_surgery.formats.shared.zip.writing import archived
from ckpt_surgery.formats.unsupported import metadata_json
from ckpt_surgery.storage.regions import PlacedArray

DEFAULT_NAME = "checkpoint.npz"


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


def layout(leaves: Sequence[Leaf], options: SinkOptions) -> list[FilePlan]:
    """One file: `checkpoint.npz`, or `options.file_name`. The metadata is the archive's comment, as JSON."""
    members = [_member(leaf) for leaf in leaves]
    return [archived(options.file_name or DEFAULT_NAME, members, comment_of(options.metadata))]


def _member(leaf: Leaf) -> FilePlan:
    """The `.npy` file of a leaf."""
    name = leaf.key.text + NPY_SUFFIX
    if leaf.string is not None:
        text = npy_string(leaf.string)
        return FilePlan(name, len(text), [(0, text)])
    assert leaf.spec is not None
    begin, size = npy_header(leaf.spec), leaf.spec.nbytes
    array = PlacedArray(leaf.spec, ((len(begin), size),))
    return FilePlan(name, len(begin) + size, [(0, begin)], {leaf.key.text: array})
