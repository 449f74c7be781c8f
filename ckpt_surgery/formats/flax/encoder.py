"""Leaves that a Flax file can hold."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.formats.flax.layout import is_native
from ckpt_surgery.formats.registry import Limits
from ckpt_surgery.formats.shared.msgpack.nodes import CHUNKED
from ckpt_surgery.formats.shared.msgpack.tree import MOST_DEPTH, MOST_TEXT_BYTES, MOST_VALUES
from ckpt_surgery.formats.unsupported import quoted, same_name, wrong_keys
from ckpt_surgery.storage.regions import are_contiguous


def _unreadable(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Leaves that would not be read back."""
    for leaf in leaves:
        names = leaf.key.names
        if leaf.string is not None and len(leaf.string) * 4 > MOST_TEXT_BYTES:
            length = len(leaf.string)
            yield f"{quoted(leaf)} is a string of {length} characters, too long to be read back; drop it."
        if CHUNKED in names:
            why = "by which Flax knows arrays in pieces"
            yield f"{quoted(leaf)} has the component `{CHUNKED}`, {why}; rename it."
        if len(names) > MOST_DEPTH:
            yield f"{quoted(leaf)} is nested {len(names)} deep, and {MOST_DEPTH} is the limit; rename it."


def _wrong_tree(leaves: Sequence[Leaf]) -> Iterator[str]:
    """The file is one tree: each node has its own name, and their number is limited."""
    counts = Counter([leaf.key.names for leaf in leaves])
    containers = {names[:i] for names in counts for i in range(len(names))}
    for names, count in counts.items():
        if count > 1:
            yield same_name("/".join(names), count)
    if len(counts) + len(containers) > MOST_VALUES:
        yield (
            f"{len(leaves)} leaves in {len(containers)} containers are too many to be read back: "
            f"{MOST_VALUES} is the limit; drop some."
        )


LIMITS = Limits(
    ("a Flax file holds arrays, strings and empty nodes", "Flax cannot restore"),
    frozenset(DTYPES.values()),
    (LeafKind.STRING,),
    (wrong_keys, _unreadable, _wrong_tree),
    lambda leaf, manifest: not is_native(leaf) and are_contiguous(manifest),
)
