"""The slices of a result: which layers of which models they are made of.

A configuration with `models` is one slice of all layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_surgery.language.yaml.document import DocumentPath
from ckpt_surgery.merging.models import MergeConfig
from ckpt_surgery.merging.settings import Setting

BASE_PATH: DocumentPath = ("base_model",)
"""Path of a base that the list of models does not have."""


@dataclass(frozen=True, eq=False)
class SlicePart:
    """A model in a slice."""

    model: str
    """The model as the configuration names it."""
    path: DocumentPath
    """Where it stands there."""
    parameters: Mapping[str, Setting]
    first: int = 0
    """Its first layer in the slice."""
    layers: int | None = None
    """Number of its layers in the slice; None: all."""


@dataclass(frozen=True, eq=False)
class Slice:
    """Layers of the result that follow one another."""

    path: DocumentPath
    """Path of the mapping that has the slice's fields."""
    listed: DocumentPath
    """Path of the list of its models."""
    parts: tuple[SlicePart, ...]
    base: str | None
    """The base model, where the configuration has one."""
    parameters: Mapping[str, Setting]
    begin: int = 0
    """Number of its first layer in the result."""

    @property
    def reference(self) -> SlicePart:
        """The model whose tensors the result has: the base, or else the first one."""
        return next((part for part in self.parts if part.model == self.base), self.parts[0])


def slices_of(config: MergeConfig) -> tuple[Slice, ...]:
    """The slices of a configuration in order. A base that `models` does not list comes after them."""
    slices: list[Slice] = []
    if config.models is not None:
        parts = [
            SlicePart(model.model, ("models", i), model.parameters) for i, model in enumerate(config.models)
        ]
        base = config.base_model
        if base is not None and all(part.model != base for part in parts):
            parts.append(SlicePart(base, BASE_PATH, {}))
        slices.append(Slice((), ("models",), tuple(parts), base, {}))
    begin = 0
    for i, slice in enumerate(config.slices or ()):
        listed = ("slices", i, "sources")
        sliced = tuple(
            SlicePart(source.model, (*listed, j), source.parameters, first, stop - first)
            for j, source in enumerate(slice.sources)
            for first, stop in [source.layer_range]
        )
        base = slice.base_model or config.base_model
        slices.append(Slice(listed[:2], listed, sliced, base, slice.parameters, begin))
        begin += max((part.layers or 0 for part in sliced), default=0)
    return tuple(slices)


def models_of(config: MergeConfig) -> tuple[str, ...]:
    """All models as the configuration names them, each once: the base, or else the first one, comes first."""
    parts = (part.model for slice in slices_of(config) for part in slice.parts)
    base = () if config.base_model is None else (config.base_model,)
    return tuple(dict.fromkeys((*base, *parts)))
