"""Names of tensors: which are of a layer, and which stand before and after the layers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

STACK_NAMES = ("layers", "layer", "h", "blocks", "block")
"""Last components of the names of stacks of layers, as in `model.layers.0.mlp.up_proj.weight`."""
_LAYER = re.compile(
    rf"(?P<stack>(?:[^.\d][^.]*\.)*?(?:{'|'.join(STACK_NAMES)}))\.(?P<layer>\d+)\.(?P<rest>.+)"
)
_FIRST = ("emb", "wte", "wpe", "shared")
"""Parts of the names of what stands before the layers: the embeddings."""
_HEAD = "embed_out"
"""Name of GPT-NeoX's head, which sounds like an embedding."""
BUFFERS = ("inv_freq", "position_ids", "masked_bias")
"""Last components of what is computed from the config. Some versions of a model save it, others do not."""


@dataclass(frozen=True)
class LayerName:
    """A name of a tensor that is in a layer."""

    stack: str
    """Name of the stack: `model.layers`."""
    number: int
    """Number of the layer."""
    rest: str
    """The name within the layer: `mlp.up_proj.weight`."""

    def at(self, number: int) -> str:
        """The name of the same tensor of another layer."""
        return f"{self.stack}.{number}.{self.rest}"


def layer_name(name: str) -> LayerName | None:
    """The parts of a name; None where the tensor is in no layer."""
    found = _LAYER.fullmatch(name)
    return None if found is None else LayerName(found["stack"], int(found["layer"]), found["rest"])


def layer_counts(names: Iterable[str]) -> Mapping[str, int]:
    """The number of layers of each stack: one more than the largest number of a layer."""
    counts: dict[str, int] = {}
    for found in filter(None, map(layer_name, names)):
        counts[found.stack] = max(counts.get(found.stack, 0), found.number + 1)
    return counts


def is_before_layers(name: str) -> bool:
    """Whether a tensor outside of the layers stands before them: embeddings do, norms and heads do not."""
    return any(part in name for part in _FIRST) and _HEAD not in name


def is_buffer(name: str) -> bool:
    """Whether a tensor is one that a model can do without, because it is computed anew."""
    return name.rpartition(".")[2] in BUFFERS
