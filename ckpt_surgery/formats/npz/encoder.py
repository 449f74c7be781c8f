"""What an `.npz` file can hold."""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.npz.layout import comment_of
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.npy import DESCRIPTIONS, MOST_STRING_BYTES
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.unsupported import (
    quoted,
    repeated_keys,
    wrong_dtypes,
    wrong_keys,
    wrong_kinds,
    wrong_strings,
)
from ckpt_surgery.formats.shared.zip.layout import MOST_NAME_BYTES
from ckpt_surgery.storage.regions import are_contiguous


class NpzEncoder(Encoder):
    """Arrays that are stored as they are, and strings."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why an `.npz` file cannot hold these leaves, one sentence each; empty: it can."""
        return [
            *wrong_kinds(leaves, (LeafKind.PRNG_KEY,), "an .npz file holds arrays and strings"),
            *wrong_dtypes(leaves, DESCRIPTIONS, "NumPy cannot store"),
            *wrong_strings(leaves),
            *_lost_strings(leaves),
            *wrong_keys(leaves),
            *_wrong_names(leaves),
            *repeated_keys(leaves),
            *_ambiguous_names(leaves),
        ]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether the stored bytes, one chunk after another, are the array's elements."""
        return leaf.spec is not None and are_contiguous(manifest)


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


def npz_encoder(options: SinkOptions) -> NpzEncoder:
    """The encoder. Raises UsageError for a step, an item, and metadata too long for the archive's comment."""
    check_no_choice("An .npz file has", options.step, options.item, "dst_")
    comment_of(options.metadata)
    return NpzEncoder()
