"""Attributes of HDF5 files: the names of dtypes, and those of the root group as custom metadata.

Texts of any length are read without libhdf5. Its version 1.14 allocates as much memory as such an attribute
says that its text takes, before it looks for it; where that fails it leaves types open that refer to the
closed file, and crashes when the process ends. So the attribute's message in the header of its object is
found here, and the text in the heap that it refers to.

Source: the HDF5 1.14 specification, sections IV.A.1 (headers), IV.A.2.m (attributes) and III.E (heaps). The
attributes of objects with very many of them are in another place; they are not found, and left out.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any

import numpy as np

from ckpt_surgery.core.text import is_unicode
from ckpt_surgery.formats.hdf5.library import FileView, heap_objects
from ckpt_surgery.storage.failures import damaged

ATTRIBUTE, CONTINUATION = 0x0C, 0x10
"""Types of messages in headers of objects."""
SHARED = 2
"""Flag of a message that is in another place."""
SIGNATURE, SIGNATURE_MORE = b"OHDR", b"OCHK"
"""First bytes of headers of version 2, and of their continuations."""
_HEADER_1 = Struct("<BxHII4x")
"""Version, messages, references, bytes of messages."""
_MESSAGE_1, _MESSAGE_2 = Struct("<HHB3x"), Struct("<BHB")
"""Type, bytes, flags."""
_ATTRIBUTE = Struct("<BBHHH")
"""Version, flags; bytes of the name, the type and the space."""
_TEXT = Struct("<IQI")
"""Bytes of the text, address of its heap, index in it."""
MOST_BLOCKS = 10_000
"""Largest number of pieces of one header."""
MOST_METADATA_BYTES = 64 << 20
"""Total size of the texts that are taken as custom metadata; the attributes after that are left out."""


def root_attributes(file: Any, view: FileView) -> dict[str, Any]:
    """The attributes of the root of h5py's `FileID` that are a text, a number or a truth value, by name."""
    from h5py import h5a, h5g

    root, attributes, left = h5g.open(file, b"/"), {}, MOST_METADATA_BYTES
    for i in range(h5a.get_num_attrs(root)):
        attribute = h5a.open(root, index=i)
        name, value = _decoded(attribute.name), value_of(attribute, root, view)
        left -= len(value) if isinstance(value, str) else 0
        if left < 0:
            break
        if name is not None and value is not None:
            attributes[name] = value
    return attributes


def value_of(attribute: Any, owner: Any, view: FileView) -> str | float | None:
    """The value of an attribute without axes, as Python's; None for what is not a text, number or truth."""
    from h5py import h5s, h5t

    stored, kind = attribute.get_type(), attribute.get_type().get_class()
    simple = attribute.get_space().get_simple_extent_type() == h5s.SCALAR
    if not simple or kind not in (h5t.STRING, h5t.INTEGER, h5t.FLOAT, h5t.ENUM):
        return None
    if kind == h5t.STRING and stored.is_variable_str():
        return _decoded(_text(view, owner, attribute.name))
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


def _text(view: FileView, owner: Any, name: bytes) -> bytes | None:
    """The text of an attribute without axes of h5py's `owner`; None where it is not in the header."""
    from h5py import h5o

    messages = _messages(view, h5o.get_info(owner).addr)
    data = next(filter(None, (_attribute(message, name) for message in messages)), None)
    if data is None:
        return None
    length, address, index = _TEXT.unpack_from(data)
    if not length:
        return b""
    objects = dict(heap_objects(view, address))
    stored = objects.get(index, b"") if index else b""
    if len(stored) < length:
        raise damaged(f"the text of an attribute has {length} bytes, which are missing")
    return stored[:length].split(b"\0")[0]


def _messages(view: FileView, at: int) -> Iterator[bytes]:
    """The attributes in the header at an offset, as their messages."""
    head = view.bytes_at(at, _HEADER_1.size)
    old, flags = not head.startswith(SIGNATURE), head[5]
    if old:
        first, size = at + _HEADER_1.size, _HEADER_1.unpack(head)[3]
    else:
        width = 1 << (flags & 3)
        first = at + 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10) + width
        size = int.from_bytes(view.bytes_at(first - width, width), "little")
    blocks = [(first, size)]
    for start, size in blocks:
        data = view.bytes_at(start, size)
        if not old and start != first:
            data = data[len(SIGNATURE_MORE) : -4]  # without the checksum
        for kind, body in _split(data, old, ordered=not old and bool(flags & 4)):
            if kind == ATTRIBUTE:
                yield body
            elif kind == CONTINUATION and len(body) >= 16 and len(blocks) < MOST_BLOCKS:
                offset, length = (int.from_bytes(body[i : i + 8], "little") for i in (0, 8))
                blocks.append((offset, length))


def _split(data: bytes, old: bool, ordered: bool) -> Iterator[tuple[int, bytes]]:
    """The messages of a block that are not in another place: type and contents."""
    struct, at = _MESSAGE_1 if old else _MESSAGE_2, 0
    begin = struct.size + 2 * ordered
    while at + begin <= len(data):
        kind, size, flags = struct.unpack_from(data, at)
        at += begin
        if not flags & SHARED:
            yield kind, data[at : at + size]
        at += size


def _attribute(message: bytes, name: bytes) -> bytes | None:
    """The data of an attribute of that name, at least as long as a text's; None for others."""
    if len(message) < _ATTRIBUTE.size:
        return None
    version, _, *sizes = _ATTRIBUTE.unpack_from(message)
    at = _ATTRIBUTE.size + (version == 3)
    if message[at : at + sizes[0]].split(b"\0")[0] != name:
        return None
    unit = 8 if version == 1 else 1
    data = message[at + sum(-(-size // unit) * unit for size in sizes) :]
    return data if len(data) >= _TEXT.size else None
