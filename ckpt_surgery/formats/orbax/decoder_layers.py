"""Tell how a decoder's tree holds its layers, by the names in MaxText's checkpoints.

Its steps have an entry `scan_layers` in the custom metadata, which has to say how the tree holds layers.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ckpt_surgery.core.leaves import Leaf

SCAN_LAYERS = "scan_layers"
"""Entry of a step's custom metadata in which MaxText says whether layers are stacked."""
_DECODER = r"(?:(?:params/)?params/|base/)?decoder/"
_SINGLE = re.compile(_DECODER + r"(?:\w+_)?layers[_/]\d+/.*")
_NUMBERED = re.compile(_DECODER + r"(?:\w+_)?layers/(?:layers/)?\d+/.*")
"""One layer, or one stack of blocks, with a component of its own for its number, as NNX has it."""
_STACKED = re.compile(_DECODER + r"(?P<stack>(?:\w+_)?layers)/(?!\d+/).*")
_EMBEDDING = re.compile(r"(?:(?:params/)?params/|base/)?token_embedder/embedding(?:/value)?")
_REMAINDER = re.compile(_DECODER + r"layers_remainder/.*")
"""Layers that no whole block is made of, beside a stack of blocks."""
_NO_PARAMETER = re.compile(r"(?:.*/)?(?:(?:\w+_)?rngs/.*|gate/bias(?:/value)?)")
"""State of random numbers, and the bias of gates, which is stacked along the first axis everywhere."""


def forms_of_layers(keys: Iterable[str]) -> set[bool]:
    """The forms in which keys have layers: True for stacks, False for layers that are each by themselves."""
    forms = set()
    for key in keys:
        if _STACKED.fullmatch(key) or _REMAINDER.fullmatch(key):
            forms.add(True)
        elif _SINGLE.fullmatch(key):
            forms.add(False)
    return forms


def with_scan_layers(metadata: Mapping[str, Any], keys: Collection[str], is_step: bool) -> dict[str, Any]:
    """Set a step's `scan_layers` to what the keys have: MaxText refuses one that contradicts its config."""
    forms = forms_of_layers(keys) if any(map(_EMBEDDING.fullmatch, keys)) else set()
    if len(forms) != 1 or not (is_step or SCAN_LAYERS in metadata):
        return dict(metadata)
    return {**metadata, SCAN_LAYERS: forms.pop()}


def is_numbered(keys: Iterable[str]) -> bool:
    """True if numbers of layers are components of keys: `layers/0` instead of `layers_0`."""
    return any(_NUMBERED.fullmatch(key) for key in keys)


def layer_axes(leaves: Mapping[str, Leaf]) -> tuple[int, ...]:
    """Axes, 0 or 1, that can be those of the layers: all arrays of each stack are equally long along them."""
    stacks: dict[str, list[tuple[int, ...]]] = {}
    for key, leaf in leaves.items():
        match = _STACKED.fullmatch(key)
        if match and leaf.spec is not None and leaf.spec.ndim > 1 and not _NO_PARAMETER.fullmatch(key):
            stacks.setdefault(match["stack"], []).append(leaf.spec.shape)
    if not stacks:
        return ()
    lengths = [[{shape[axis] for shape in shapes} for shapes in stacks.values()] for axis in (0, 1)]
    return tuple(axis for axis in (0, 1) if all(len(several) == 1 for several in lengths[axis]))
