"""The slices of a result: which layers of which models they are made of.

A configuration with `models` is one slice of all layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.yaml.document import DocumentPath
from ckpt_surgery.merging.checks import Finding
from ckpt_surgery.merging.models import MergeConfig
from ckpt_surgery.merging.names import layer_counts
from ckpt_surgery.merging.reading import LoadedConfig, in_order
from ckpt_surgery.merging.settings import Setting

Listings = Mapping[str, Mapping[str, Leaf]]
"""The leaves of each model, by the model as the configuration names it and by key."""


@dataclass(frozen=True, eq=False)
class Part:
    """A model in a slice."""

    model: str
    """The model as the configuration names it."""
    path: DocumentPath
    """Where it stands there."""
    first: int
    """Its first layer in the slice."""
    parameters: Mapping[str, Setting]


@dataclass(frozen=True, eq=False)
class Slice:
    """Layers of the result that follow one another."""

    path: DocumentPath
    parts: tuple[Part, ...]
    base: str | None
    """The base model, where the configuration has one."""
    layers: int | None
    """Number of layers; None: all that the models have."""
    parameters: Mapping[str, Setting]

    @property
    def reference(self) -> Part:
        """The model whose tensors the result has: the base, or else the first one."""
        return next((part for part in self.parts if part.model == self.base), self.parts[0])


def slices_of(config: MergeConfig) -> tuple[Slice, ...]:
    """The slices of a configuration in order. A base that `models` does not list comes after them."""
    if config.models is not None:
        parts = [
            Part(model.model, ("models", i), 0, model.parameters) for i, model in enumerate(config.models)
        ]
        base = config.base_model
        if base is not None and all(part.model != base for part in parts):
            parts.append(Part(base, ("base_model",), 0, {}))
        return (Slice(("models",), tuple(parts), base, None, {}),)
    found = []
    for i, slice in enumerate(config.slices or ()):
        path: DocumentPath = ("slices", i)
        sliced = tuple(
            Part(source.model, (*path, "sources", j), source.layer_range[0], source.parameters)
            for j, source in enumerate(slice.sources)
        )
        first, stop = slice.sources[0].layer_range
        base = slice.base_model or config.base_model
        found.append(Slice(path, sliced, base, stop - first, slice.parameters))
    return tuple(found)


def models_of(config: MergeConfig) -> tuple[str, ...]:
    """All models as the configuration names them, each once: the base, or else the first one, comes first."""
    parts = (part.model for slice in slices_of(config) for part in slice.parts)
    base = () if config.base_model is None else (config.base_model,)
    return tuple(dict.fromkeys((*base, *parts)))


def check_layers(loaded: LoadedConfig, slices: Sequence[Slice], listings: Listings) -> None:
    """Raise PlanError for layers that a model does not have, with the place of each."""
    if loaded.config.slices is None:
        return
    found = [finding for slice in slices for finding in _missing_layers(slice, listings)]
    if found:
        raise PlanError(*in_order(map(loaded.problem, found)), code=Code.WRONG_VALUE)


def _missing_layers(slice: Slice, listings: Listings) -> Iterator[Finding]:
    for part in slice.parts:
        counts = layer_counts(listings[part.model])
        stop = part.first + (slice.layers or 0)
        if len(counts) > 1:
            stacks = few_keys(counts)
            message = f"`{shown(part.model)}` has several stacks of layers: {stacks}"
            hint = "`slices` are for models with one; merge this one with `models`."
            yield Finding((*part.path, "model"), message, hint)
        elif stop > (have := sum(counts.values())):
            last = f"layers 0 to {have - 1}" if have else "no layers by the names of its tensors"
            message = f"layer {stop - 1} does not exist: `{shown(part.model)}` has {last}"
            yield Finding((*part.path, "layer_range"), message, code=Code.WRONG_VALUE)
