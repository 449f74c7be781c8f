"""The constants of flax's format are flax's own."""

import msgpack
import numpy as np
import pytest
from flax import serialization

from ckpt_surgery.formats.shared.msgpack.nodes import ARRAY, CHUNKED, COMPLEX, SCALAR


def test_extension_types_are_those_that_flax_writes() -> None:
    packed = serialization.msgpack_serialize({"a": np.ones(2), "b": 1j, "c": np.float32(1)})
    found = msgpack.unpackb(packed)
    assert {name: value.code for name, value in found.items()} == {"a": ARRAY, "b": COMPLEX, "c": SCALAR}


def test_arrays_in_pieces_are_marked_as_flax_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 8)
    found = msgpack.unpackb(serialization.msgpack_serialize({"a": np.ones(4)}))
    assert found["a"][CHUNKED] is True
