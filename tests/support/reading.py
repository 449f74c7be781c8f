"""What this package reads of a checkpoint."""

import os
from pathlib import Path
from typing import Any

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.opening import open_source


def opened(path: Path, format: str | None = None, step: int | None = None, item: str | None = None) -> Source:
    """The source at a path; without `format`, of the format that is recognized."""
    return open_source(os.fspath(path), format, step, item)


def values(source: Source) -> dict[str, Any]:
    """Everything in a source, by key: arrays, strings, and the kinds of empty nodes, such as `<Dict>`.

    Each array is read whole and must have the shape and the dtype that the listing says.
    """
    found: dict[str, Any] = {}
    for text, leaf in source.leaves().items():
        assert text == leaf.key.text
        if leaf.spec is None:
            found[text] = f"<{leaf.empty}>" if leaf.string is None else leaf.string
        else:
            found[text] = source.read(leaf, Region.whole(leaf.spec.shape))
            assert (found[text].shape, found[text].dtype) == (leaf.spec.shape, leaf.spec.dtype)
    return found


def read(path: Path, step: int | None = None) -> dict[str, Any]:
    """Everything in the checkpoint at a path, in the form of `values`."""
    return values(opened(path, step=step))
