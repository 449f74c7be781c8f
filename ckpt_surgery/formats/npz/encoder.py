"""What an `.npz` file can hold."""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.npz.layout import comment_of
from ckpt_surgery.formats.registry import Limits, SinkOptions
from ckpt_surgery.formats.shared.npy import DESCRIPTIONS, MOST_STRING_BYTES, NPY_SUFFIX
from ckpt_surgery.formats.shared.zip.layout import MOST_NAME_BYTES
from ckpt_surgery.formats.unsupported import LimitedEncoder, quoted, repeated_keys, wrong_keys


def _lost_strings(leaves: Sequence[Leaf]) -> Iterator[str]:
    for leaf in leaves:
        text = leaf.string
        if text is not None and (4 * len(text) > MOST_STRING_BYTES or text.endswith("\0")):
            yield f"{quoted(leaf)} is a string that is too long or ends in NUL; drop it."


def _wrong_names(leaves: Sequence[Leaf]) -> Iterator[str]:
    for leaf in leaves:
        text = leaf.key.text
        length = len(text.encode(errors="replace")) + len(NPY_SUFFIX)
        if length > MOST_NAME_BYTES:
            yield f"`{shown(text[:200])}…` has {length} bytes, too many for a name; rename it."
        if "\0" in text:
            yield f"{quoted(leaf)} has a NUL in it, where readers of zip archives cut names off; rename it."


def _ambiguous_names(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Names that differ only in the suffix that `np.load` takes off."""
    texts = dict.fromkeys([leaf.key.text for leaf in leaves])
    for text in texts:
        if text.endswith(NPY_SUFFIX) and text.removesuffix(NPY_SUFFIX) in texts:
            other = shown(text.removesuffix(NPY_SUFFIX))
            yield f"`{shown(text)}` could not be told from `{other}` by np.load; rename one."


LIMITS = Limits(
    ("an .npz file holds arrays and strings", "NumPy cannot store"),
    DESCRIPTIONS,
    (LeafKind.STRING,),
    (_lost_strings, wrong_keys, _wrong_names, repeated_keys, _ambiguous_names),
)


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for metadata too long for the archive's comment."""
    comment_of(options.metadata)
    return LimitedEncoder(LIMITS)
