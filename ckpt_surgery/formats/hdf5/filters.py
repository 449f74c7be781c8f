"""Decode the filtered chunks of HDF5 datasets: deflate and shuffle.

This is not left to libhdf5: for a stream that ends too early it returns whatever lies in its memory behind
the end. Source: the HDF5 1.14 specification, section IV.A.2.l.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.storage.failures import damaged

GZIP, SHUFFLE = "gzip", "shuffle"
NAMES = {1: GZIP, 2: SHUFFLE}
"""The filters that are decoded here, by their registered numbers."""
BUILT_IN = range(1, 7)
"""Numbers of the filters that belong to libhdf5 itself."""
MOST_GAIN = 1032
"""Largest number of bytes that one compressed byte can become: by deflate, 258 for every two bits."""

Filter = Mapping[str, Any]
"""A codec of an encoding: `hdf5` is the filter's name; of shuffle, `size` is the number of bytes of an
element. It has no `name`, because zarr has no such codec."""


def decode_chunk(manifest: Manifest, stored: bytes) -> bytes:
    """The plain bytes of a chunk."""
    return decoded(stored, _filters_of(manifest.codec.encoding), manifest.chunk_nbytes)


@cache
def _filters_of(encoding: str) -> Sequence[Filter]:
    """The filters of an encoding, which begins with the codec `bytes`."""
    return tuple(json.loads(encoding)[1:])


def decoded(data: bytes, filters: Sequence[Filter], nbytes: int) -> bytes:
    """Decode a chunk's `nbytes` bytes. Raises SourceError where they decode to another number of bytes."""
    for step in reversed(filters):
        data = _inflated(data, nbytes) if step["hdf5"] == GZIP else _unshuffled(data, step["size"])
    if len(data) != nbytes:
        raise damaged(f"a chunk decodes to {len(data)} bytes instead of {nbytes}")
    return data


def _inflated(data: bytes, nbytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, nbytes + 1)
    except zlib.error as error:
        raise damaged(f"a chunk cannot be inflated: {error}") from error
    if len(found) != nbytes or not stream.eof:
        more = "more than " if len(found) > nbytes else ""
        raise damaged(
            f"a chunk inflates to {more}{min(len(found), nbytes)} bytes, and its stream "
            f"{'ends' if stream.eof else 'does not end'} there; {nbytes} belong there"
        )
    return found


def _unshuffled(data: bytes, element_bytes: int) -> bytes:
    """The first bytes of all elements come first, then all second ones; what is no whole element is last."""
    count = len(data) // element_bytes
    whole = np.frombuffer(data, np.uint8, count * element_bytes).reshape(element_bytes, count)
    return whole.T.tobytes() + data[count * element_bytes :]
