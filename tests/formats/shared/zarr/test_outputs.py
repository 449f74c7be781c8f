"""The metadata of an output: of its stored bytes where they are kept, else of its own grid."""

import json

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.shared.zarr.metadata import parse_array
from ckpt_surgery.formats.shared.zarr.outputs import definition
from tests.support.leaves import array_leaf


@pytest.mark.parametrize("version", [2, 3])
def test_an_output_is_described_by_its_grid_or_by_its_stored_bytes(version: int) -> None:
    leaf = array_leaf("w", (4, 6))
    computed = parse_array(definition(Output(leaf, (2, 3)), version), version)
    assert (computed.chunk_shape, computed.raw) == ((2, 3), False)
    stored = contiguous(ArraySpec((4, 6), np.dtype(np.float32)), "x", 8)
    adopted = parse_array(definition(Output(leaf, (4, 6), stored), version), version)
    assert (adopted.chunk_shape, adopted.raw) == ((4, 6), True)
    assert json.loads(definition(Output(leaf, (4, 6), stored), version))["zarr_format"] == version


def test_a_type_that_zarr_does_not_have_is_an_error_with_the_key() -> None:
    leaf = array_leaf("a/b", (4,), np.dtype("S3"))
    with pytest.raises(StorageError, match=r"^Writing `a/b` failed: "):
        definition(Output(leaf, (4,)), 3)
