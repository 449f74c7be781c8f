"""The tensors of a result: which tensor of each model each one is made of, and where it stands."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.merging.models import Slice, SlicePart

STACK_NAMES = ("layers", "layer", "h", "blocks", "block")
"""Last components of the names of stacks of layers, as in `model.layers.0.mlp.up_proj.weight`."""
_LAYER = re.compile(
    rf"(?P<stack>(?:[^.\d][^.]*\.)*?(?:{'|'.join(STACK_NAMES)}))\.(?P<layer>\d+)\.(?P<rest>.+)"
)
_FIRST = ("emb", "wte", "wpe", "shared")
"""Parts of the names of what stands before the layers: embeddings do, norms and heads do not."""
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
    match = _LAYER.fullmatch(name)
    return None if match is None else LayerName(match["stack"], int(match["layer"]), match["rest"])


def layer_counts(names: Iterable[str]) -> Mapping[str, int]:
    """The number of layers of each stack: one more than the largest number of a layer."""
    counts: dict[str, int] = {}
    for layer in filter(None, map(layer_name, names)):
        counts[layer.stack] = max(counts.get(layer.stack, 0), layer.number + 1)
    return counts


Listings = Mapping[str, Mapping[str, Leaf]]
"""The leaves of each model, by the model as the configuration names it and by key."""


@dataclass(frozen=True, eq=False)
class MergedTensor:
    """A tensor of the result, whether or not all models have it."""

    name: str
    slice: Slice
    names: tuple[str, ...]
    """Its name in each model of the slice."""
    t: float = 0.0
    """Position of its layer in the slice, from 0 for the first to 1 for the last; 0 outside of layers."""
    in_layer: bool = False

    def offset(self, part: SlicePart) -> int:
        """Number of its layer in a model less that in the result; 0 outside of layers."""
        return part.first - self.slice.begin if self.in_layer else 0


def outputs_of(slices: Sequence[Slice], listings: Listings) -> list[MergedTensor]:
    """The tensors that any model has, by name. What is computed from the config counts if all models have it.

    Those outside of layers come from the models of the first slice where they stand before the layers, and of
    the last one otherwise.
    """
    every = [output for slice in slices for output in _outputs(slice, slices, listings)]
    return sorted(every, key=lambda output: output.name)


def _outputs(slice: Slice, slices: Sequence[Slice], listings: Listings) -> list[MergedTensor]:
    models = [listings[part.model] for part in slice.parts]
    counts = layer_counts(name for names in models for name in names)
    tensors: dict[str, MergedTensor] = {}
    for part, names in zip(slice.parts, models, strict=True):
        for name in names:
            layer = layer_name(name)
            if layer is None:
                is_before = any(part in name for part in _FIRST) and _HEAD not in name
                if slice is (slices[0] if is_before else slices[-1]):
                    tensors[name] = MergedTensor(name, slice, (name,) * len(models))
                continue
            count, index = slice.parts[0].layers or counts[layer.stack], layer.number - part.first
            if 0 <= index < count:
                key = layer.at(slice.begin + index)
                its = tuple(layer.at(other.first + index) for other in slice.parts)
                tensors[key] = MergedTensor(key, slice, its, index / (count - 1) if count > 1 else 1.0, True)
    return [
        output
        for output in tensors.values()
        if output.name.rpartition(".")[2] not in BUFFERS
        or all(name in names for name, names in zip(output.names, models, strict=True))
    ]
