"""Sentences about leaves that a format cannot hold, in the same words for all formats."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder, EncoderDetails
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.registry import Limits
from ckpt_surgery.storage.regions import are_contiguous

_KINDS = {LeafKind.STRING: "a string", LeafKind.PRNG_KEY: "a PRNG key, whose type would be lost"}
"""Kinds of leaves that formats may lack a place for, in words."""

NOT_UNICODE = "is not valid Unicode, so it cannot be stored as UTF-8"
"""The problem of a text with half of a surrogate pair, as a predicate."""


@dataclass(frozen=True)
class LimitedEncoder(Encoder):
    """The encoder of a format that is described by `Limits`. Writers can write any grid."""

    limits: Limits
    details: EncoderDetails = field(default_factory=EncoderDetails)

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        limits, (holds, why) = self.limits, self.limits.words
        lacking = _KINDS.keys() - set(limits.kinds)
        sentences = []
        for leaf in leaves:
            if leaf.kind in lacking:
                sentences.append(f"{quoted(leaf)} is {_KINDS[leaf.kind]}; {holds} only; drop it.")
            if leaf.spec is not None and leaf.spec.dtype not in limits.dtypes:
                sentences.append(f"{quoted(leaf)} {dtype_problem(leaf.spec.dtype, why)}")
            if leaf.string is not None and leaf.kind not in lacking and not is_unicode(leaf.string):
                sentences.append(f"{quoted(leaf)} is a string that {NOT_UNICODE}; drop it.")
        more = (wrong_keys, repeated_keys) if limits.more is None else limits.more
        return [*sentences, *(sentence for check in more for sentence in check(leaves))]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        adopts = self.limits.adopts
        return leaf.spec is not None and (
            are_contiguous(manifest) if adopts is None else adopts(leaf, manifest)
        )


def quoted(leaf: Leaf) -> str:
    """The key of a leaf as messages quote it."""
    return f"`{shown(leaf.key.printed)}`"


def dtype_problem(dtype: np.dtype[Any], library: str) -> str:
    """Reason why a library cannot hold a dtype, as a predicate: `is uint4, which zarr cannot store; …`.

    A cast does not help where elements are no numbers: objects (such as TensorFlow's strings), text, times.
    """
    castable = dtype.kind not in "OSUMm" and dtype.type is not np.void
    return f"is {dtype.name}, which {library}; {'cast it to another type' if castable else 'drop it'}."


def wrong_keys(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Leaves whose key cannot be encoded as UTF-8."""
    for leaf in leaves:
        if not is_unicode(leaf.key.text):
            yield f"{quoted(leaf)} {NOT_UNICODE}; rename it."


def repeated_keys(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Texts of keys that several leaves have."""
    for text, count in Counter([leaf.key.text for leaf in leaves]).items():
        if count > 1:
            yield same_name(text, count)


def same_name(text: str, count: int) -> str:
    """The problem that this many leaves have the same name."""
    return f"{count} leaves would have the name `{shown(text)}`; rename all but one."


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """The custom metadata as JSON in ASCII characters, without spaces. Raises UsageError."""
    try:
        return json.dumps(dict(metadata), separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata cannot be stored as JSON: {error}") from error
