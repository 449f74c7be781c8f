"""Values that fit into a listing: those of arrays without axes, and of strings."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.folding import escaped
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.report.distances import whole_numbers
from ckpt_surgery.report.leaves import Unread
from ckpt_surgery.report.values import is_numeric, without_key

MOST_SCALARS = 32
"""Number of arrays without axes that are read for a listing; each can take a request to a store."""

LONGEST_TEXT = 40
"""Number of characters of a string that a line shows."""

Scalar = bool | int | float | complex
Values = Mapping[str, Scalar | Unread]
"""Values of arrays without axes, or why they could not be read, by the text of the leaf's key."""

_DIGITS = re.compile("[0-9]+")


def scalar_values(source: Source, leaves: Iterable[Leaf]) -> dict[str, Scalar | Unread]:
    """The values of the first `MOST_SCALARS` numbers without axes among the leaves, which have values."""
    meant = [leaf for leaf in leaves if leaf.spec is not None and leaf.spec.shape == () and _is_number(leaf)]
    return {leaf.key.text: _value(source, leaf) for leaf in meant[:MOST_SCALARS]}


def _is_number(leaf: Leaf) -> bool:
    return leaf.kind in (LeafKind.SCALAR, LeafKind.ARRAY) and is_numeric(leaf)


def _value(source: Source, leaf: Leaf) -> Scalar | Unread:
    try:
        array = source.read(leaf, Region((), ()))
    except SourceError as error:
        return Unread(without_key(leaf, error), damaged=True)
    if array.dtype.kind == "b":
        return bool(array)
    if whole_numbers(array.dtype):
        return int(array)
    return complex(array) if array.dtype.kind == "c" else float(array)


def shared_texts(leaves: Sequence[Leaf], values: Values) -> dict[str, str]:
    """The values as text by key text: `= 10`, `"adam"`.

    Among leaves whose keys differ in indices only, either all have one, and the same, or none has any: then
    such leaves can share a line.
    """
    texts = {leaf.key.text: _text(leaf, values) for leaf in leaves}
    if not any(texts.values()):
        return {}
    alike: dict[str, set[str]] = {}
    for key, text in texts.items():
        alike.setdefault(_DIGITS.sub("0", key), set()).add(text)
    return {key: text for key, text in texts.items() if text and len(alike[_DIGITS.sub("0", key)]) == 1}


def _text(leaf: Leaf, values: Values) -> str:
    if leaf.string is not None:
        cut = len(leaf.string) > LONGEST_TEXT
        return f'"{escaped(leaf.string[:LONGEST_TEXT])}{"…" if cut else ""}"'
    value = values.get(leaf.key.text)
    if value is None:
        return ""
    if isinstance(value, Unread):
        return f"not read: {shown(value.why)}"
    return f"= {value:.6g}" if isinstance(value, float | complex) else f"= {value}"
