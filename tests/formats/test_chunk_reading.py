"""Regions of stored arrays whose chunks are not what the manifest says."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.formats.chunk_reading import elements_in, read_stored


def test_chunks_that_cannot_be_filled_are_refused() -> None:
    """A chunk that is missing without a fill value, and one whose decoder gives fewer bytes."""
    spec, chunks = ArraySpec((2,), np.dtype("int8")), {(0,): Chunk("", 0, 1, b"a")}
    manifest = Manifest(spec, (1,), raw_codec(1), chunks)
    with pytest.raises(SourceError, match=r"its chunk \(1,\) is missing"):
        read_stored(manifest, Region((0,), (2,)))
    with pytest.raises(SourceError, match="a chunk has 0 bytes, where 1 belong"):
        elements_in(b"", ArraySpec((1,), spec.dtype), manifest.codec, Region((0,), (1,)))
