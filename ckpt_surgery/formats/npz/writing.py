"""Write `.npz` files: leaves that they can hold, and their layout, known before any element."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.plain_files import LimitedEncoder, metadata_json, quoted, repeated_keys, wrong_keys
from ckpt_surgery.formats.registry import FilePlan, Limits, SinkOptions
from ckpt_surgery.formats.shared import npy
from ckpt_surgery.formats.shared.zip.members import MOST_COMMENT_BYTES, MOST_NAME_BYTES
from ckpt_surgery.formats.shared.zip.writing import archived
from ckpt_surgery.storage.regions import PlacedArray


def _problems(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Strings and names that would not be read back as they are."""
    texts = {leaf.key.text for leaf in leaves}
    for leaf in leaves:
        text, string, name = leaf.key.text, leaf.string, leaf.key.text.removesuffix(npy.NPY_SUFFIX)
        length = len(text.encode(errors="replace")) + len(npy.NPY_SUFFIX)
        if string is not None and (4 * len(string) > npy.MOST_STRING_BYTES or string.endswith("\0")):
            yield f"{quoted(leaf)} is a string that is too long or ends in NUL; drop it."
        if length > MOST_NAME_BYTES:
            yield f"`{shown(text[:200])}…` has {length} bytes, too many for a name; rename it."
        if "\0" in text:
            yield f"{quoted(leaf)} has a NUL in it, where readers of zip archives cut names off; rename it."
        if name != text and name in texts:  # np.load takes the suffix off
            yield f"`{shown(text)}` could not be told from `{shown(name)}` by np.load; rename one."


LIMITS = Limits(
    ("an .npz file holds arrays and strings", "NumPy cannot store"),
    npy.DESCRIPTIONS,
    (LeafKind.STRING,),
    (wrong_keys, repeated_keys, _problems),
)


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder, unless the metadata is too long for the archive's comment."""
    comment_of(options.metadata)
    return LimitedEncoder(LIMITS)


def comment_of(metadata: Mapping[str, Any]) -> bytes:
    """The archive's comment, which holds the custom metadata as JSON. Raises UsageError."""
    if not metadata:
        return b""
    # Other characters are escaped, so that nothing in it looks like the end of an archive.
    comment = metadata_json(metadata).encode("ascii")
    if len(comment) > MOST_COMMENT_BYTES:
        what = f"The custom metadata takes {len(comment)} bytes; an .npz file holds {MOST_COMMENT_BYTES}"
        raise UsageError(what, hint="Choose another format.")
    return comment


def layout(leaves: Sequence[Leaf], options: SinkOptions) -> list[FilePlan]:
    """One file: `checkpoint.npz`, or `options.file_name`. The metadata is the archive's comment, as JSON."""
    plans = []
    for leaf in leaves:
        spec, text = leaf.spec, leaf.key.text
        if spec is None:
            begin, size, arrays = npy.npy_string(leaf.string or ""), 0, {}
        else:
            begin, size = npy.npy_header(npy.DESCRIPTIONS[spec.dtype], spec.shape), spec.nbytes
            arrays = {text: PlacedArray(spec, ((len(begin), size),))}
        plans.append(FilePlan(text + npy.NPY_SUFFIX, len(begin) + size, [(0, begin)], arrays))
    return [archived(options.file_name or "checkpoint.npz", plans, comment_of(options.metadata))]
