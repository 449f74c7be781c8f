"""The metadata of zarr arrays that are to be written."""

import json

from ckpt_surgery.core.protocols import Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.zarr.writing import adopted_metadata, array_definition, store_errors


def definition(output: Output, zarr: int) -> bytes:
    """The metadata of the array that an output is stored in, as JSON; `zarr` is the specification's version.

    Raises StorageError.
    """
    if output.stored is not None:
        return json.dumps(adopted_metadata(output.stored, zarr)).encode()
    spec = output.leaf.spec
    assert spec is not None
    with store_errors(f"`{shown(output.leaf.key.printed)}`"):
        return array_definition(zarr, spec.dtype.name, spec.shape, output.chunks)
