"""Decode the filtered chunks of HDF5 datasets: deflate and shuffle.

This is not left to libhdf5: for a stream that ends too early it returns whatever lies in its memory behind
the end. Source: the HDF5 1.14 specification, section IV.A.2.l.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.storage.failures import DAMAGED

DEFLATE, SHUFFLE = 1, 2
NAMES = {DEFLATE: "gzip", SHUFFLE: "shuffle"}
"""The filters that are decoded here, by their registered numbers."""
BUILT_IN = range(1, 7)
"""Numbers of the filters that belong to libhdf5 itself."""
MOST_GAIN = 1032
"""Largest number of bytes that one compressed byte can become: by deflate, 258 for every two bits."""


@dataclass(frozen=True)
class Filter:
    """One step of how chunks are encoded."""

    number: int
    """The filter's registered number."""
    element_bytes: int = 1
    """Of shuffle: size of the elements whose bytes are interleaved."""


def short_name(filters: Sequence[Filter]) -> str:
    """What users call an encoding: `gzip`, or else `shuffle`; `raw` without filters."""
    return min((NAMES[step.number] for step in filters), default="raw")


def filter_codecs(filters: Sequence[Filter]) -> list[dict[str, Any]]:
    """Filters as codecs of an encoding. They have no `name`, because zarr has no such codecs."""
    return [{"hdf5": step.number, "size": step.element_bytes} for step in filters]


@cache
def _filters_of(encoding: str) -> tuple[Filter, ...]:
    """The filters of an encoding that begins with the codec `bytes`."""
    return tuple(Filter(codec["hdf5"], codec["size"]) for codec in json.loads(encoding)[1:])


def decode_chunk(manifest: Manifest, stored: bytes) -> bytes:
    """The plain bytes of a chunk. Raises SourceError where they are too many or too few."""
    return decoded(stored, _filters_of(manifest.codec.encoding), manifest.chunk_nbytes)


def decoded(data: bytes, filters: Sequence[Filter], nbytes: int) -> bytes:
    """Decode a chunk's `nbytes` bytes. Raises SourceError where they decode to another number of bytes."""
    for step in reversed(filters):
        if step.number == DEFLATE:
            data = _inflated(data, nbytes)
        else:
            data = _unshuffled(data, step.element_bytes)
    if len(data) != nbytes:
        raise SourceError(f"a chunk decodes to {len(data)} bytes instead of {nbytes}", hint=DAMAGED)
    return data


def _inflated(data: bytes, nbytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, nbytes + 1)
    except zlib.error as error:
        raise SourceError(f"a chunk cannot be inflated: {error}", hint=DAMAGED) from error
    if len(found) != nbytes or not stream.eof:
        more = "more than " if len(found) > nbytes else ""
        raise SourceError(
            f"a chunk inflates to {more}{min(len(found), nbytes)} bytes, and its stream "
            f"{'ends' if stream.eof else 'does not end'} there; {nbytes} belong there",
            hint=DAMAGED,
        )
    return found


def _unshuffled(data: bytes, element_bytes: int) -> bytes:
    """The first bytes of all elements come first, then all second ones; what is no whole element is last."""
    count = len(data) // element_bytes
    whole = np.frombuffer(data, np.uint8, count * element_bytes).reshape(element_bytes, count)
    return whole.T.tobytes() + data[count * element_bytes :]
