"""Attributes of HDF5 files: the names of dtypes, and those of the root group as custom metadata."""

import json
from collections.abc import Mapping
from typing import Any

from ckpt_surgery.core.text import is_unicode
from ckpt_surgery.formats.hdf5.element_types import DTYPE_ATTRIBUTE
from ckpt_surgery.formats.hdf5.texts import Texts

MOST_METADATA_BYTES = 64 << 20
"""Total size of the texts that are taken as custom metadata; the attributes after that are left out."""


def dtype_name(dataset: Any, texts: Texts) -> str | None:
    """The attribute `dtype` of a dataset of opaque bytes, where it is a text; else None."""
    from h5py import Dataset, h5a, h5t

    if dataset.get_type().get_class() != h5t.OPAQUE or DTYPE_ATTRIBUTE not in Dataset(dataset).attrs:
        return None
    value = _value(h5a.open(dataset, DTYPE_ATTRIBUTE.encode()), dataset, texts)
    return value if isinstance(value, str) else None


def root_attributes(file: Any, texts: Texts) -> dict[str, Any]:
    """The attributes of the root of h5py's `FileID` that are a text, a number or a truth value, by name."""
    from h5py import h5a, h5g

    root, found, left = h5g.open(file, b"/"), {}, MOST_METADATA_BYTES
    for i in range(h5a.get_num_attrs(root)):
        attribute = h5a.open(root, index=i)
        name, value = _decoded(attribute.name), _value(attribute, root, texts)
        left -= len(value) if isinstance(value, str) else 0
        if left < 0:
            break
        if name is not None and value is not None:
            found[name] = value
    return found


def _value(attribute: Any, owner: Any, texts: Texts) -> Any:
    """The value of an attribute without axes, as Python's; None for what is not a text, number or truth."""
    import h5py
    import numpy as np

    stored, space = attribute.get_type(), attribute.get_space()
    if space.get_simple_extent_type() != h5py.h5s.SCALAR:
        return None
    if stored.get_class() not in (h5py.h5t.STRING, h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM):
        return None
    if stored.get_class() == h5py.h5t.STRING and stored.is_variable_str():
        return _decoded(texts.text_of(owner, attribute.name))
    read = np.zeros((), attribute.dtype)
    attribute.read(read)
    value = read.item()
    return value if isinstance(value, int | float) else _decoded(value)


def _decoded(value: Any) -> str | None:
    """A text of UTF-8; None where it is not valid."""
    try:
        text = value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
    return text if isinstance(text, str) and is_unicode(text) else None


def stored_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The custom metadata as attributes: texts, truths and numbers as they are, everything else as JSON.

    Raises TypeError and ValueError for what is not JSON.
    """
    return {name: value if _is_plain(value) else json.dumps(value) for name, value in metadata.items()}


def _is_plain(value: Any) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str | float)
