"""On which devices, and how divided, each array of a tree lies."""

from collections.abc import Mapping
from typing import Any

from ckpt_surgery.live.tree import LiveTree


def resolved_shardings(tree: LiveTree, shardings: Any) -> Mapping[str, Any]:
    """The sharding of each array by the text of its key; None: uncommitted, on the default device."""
    return {text: getattr(value, "sharding", None) for text, value in tree.values.items()}
