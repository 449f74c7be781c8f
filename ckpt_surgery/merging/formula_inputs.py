"""Tensors of a result, and the inputs that each is computed from: models, values of parameters, dtypes.

Tensors with equal inputs share a rule.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import kind
from ckpt_surgery.core.errors import Code, PlanError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.checks.findings import Finding
from ckpt_surgery.language.yaml.document import DocumentPath
from ckpt_surgery.merging.models import (
    METHODS,
    Converted,
    MergeConfig,
    Parameter,
    Setting,
    Slice,
    SlicePart,
    slices_of,
)
from ckpt_surgery.merging.reading import LoadedConfig

STACK_NAMES = ("layers", "layer", "h", "blocks", "block")
"""Last components of the names of stacks of layers, as in `model.layers.0.mlp.up_proj.weight`."""
_LAYER = re.compile(
    rf"(?P<stack>(?:[^.\d][^.]*\.)*?(?:{'|'.join(STACK_NAMES)}))\.(?P<layer>\d+)\.(?P<rest>.+)"
)
"""A name of a tensor that is in a layer: `model.layers`, the layer's number, `mlp.up_proj.weight`."""
_FIRST = ("emb", "wte", "wpe", "shared")
"""Parts of the names of what stands before the layers: embeddings do, norms and heads do not."""
_HEAD = "embed_out"
"""Name of GPT-NeoX's head, which sounds like an embedding."""
BUFFERS = ("inv_freq", "position_ids", "masked_bias")
"""Last components of what is computed from the config. Some versions of a model save it, others do not."""


def layer_counts(names: Iterable[str]) -> Mapping[str, int]:
    """The number of layers of each stack: one more than the largest number of a layer."""
    counts: dict[str, int] = {}
    for layer in filter(None, map(_LAYER.fullmatch, names)):
        counts[layer["stack"]] = max(counts.get(layer["stack"], 0), int(layer["layer"]) + 1)
    return counts


def _at(layer: re.Match[str], number: int) -> str:
    """The name of the same tensor of another layer."""
    return f"{layer['stack']}.{number}.{layer['rest']}"


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
    tensors: dict[str, MergedTensor] = {}
    for slice in slices:
        models = [listings[part.model] for part in slice.parts]
        counts = layer_counts(name for names in models for name in names)
        for part, names in zip(slice.parts, models, strict=True):
            for name in names:
                layer = _LAYER.fullmatch(name)
                if layer is None:
                    is_before = any(part in name for part in _FIRST) and _HEAD not in name
                    if slice is (slices[0] if is_before else slices[-1]):
                        tensors[name] = MergedTensor(name, slice, (name,) * len(models))
                    continue
                count = slice.parts[0].layers or counts[layer["stack"]]
                index = int(layer["layer"]) - part.first
                if 0 <= index < count:
                    key, t = _at(layer, slice.begin + index), index / (count - 1) if count > 1 else 1.0
                    its = tuple(_at(layer, other.first + index) for other in slice.parts)
                    tensors[key] = MergedTensor(key, slice, its, t, True)

    def counts_as_tensor(tensor: MergedTensor) -> bool:
        pairs = zip(tensor.slice.parts, tensor.names, strict=True)
        is_buffer = tensor.name.rpartition(".")[2] in BUFFERS
        return not is_buffer or all(name in listings[part.model] for part, name in pairs)

    return [tensors[name] for name in sorted(tensors) if counts_as_tensor(tensors[name])]


LACKING = (
    "Models of one architecture are merged. A head that is tied to the embeddings is saved by some only."
)
VOCABULARY = "Only models with the same vocabulary are merged: bring the embeddings to one size before."

COPY = "copy"
"""Stands for the method of tensors that are not floating-point numbers, or have no elements: they are the
base's, or the first's."""

Values = tuple[tuple[str, Converted], ...]
"""Parameters by name, in the order of the method."""


@dataclass(frozen=True)
class _Valued:
    dtype: str
    """Dtype of the model's tensor, or of the result."""
    values: Values
    """Parameters of the model, or those that all models share."""

    def value(self, name: str) -> float:
        """The value of a parameter; also true or false."""
        return dict(self.values)[name]


@dataclass(frozen=True)
class ModelInputs(_Valued):
    """Input that a formula takes from a model."""

    source: str
    """Name of the source in the recipe."""
    offset: int
    """Number of a layer of the model less that of the result."""


@dataclass(frozen=True)
class FormulaInputs(_Valued):
    """Method, models, parameters and dtypes of a formula; tensors with equal ones share a rule."""

    method: str
    """Name of the method, or COPY."""
    models: tuple[ModelInputs, ...]
    """One for each model; the base is not among them where the method sets it apart."""
    base: ModelInputs | None = None
    """The base, where the method sets it apart."""
    scalar: bool = False
    """True if the tensors have no axes. Formulas see them as vectors of one element."""


def inputs_by_formula(
    loaded: LoadedConfig, listings: Listings, sources: Mapping[str, str]
) -> Mapping[FormulaInputs, list[str]]:
    """The inputs of the formulas of a result, each with the names of the tensors that have them.

    `sources`: name of the recipe's source for each model. Raises PlanError for layers and tensors that a
    model lacks, for shapes that differ, and where filters leave a tensor without the value of a parameter
    that has no default; with all of them, and their places.
    """
    slices = slices_of(loaded.config)
    if missing := [finding for slice in slices for finding in _missing_layers(slice, listings)]:
        raise PlanError(*loaded.problems(missing))
    join = _Join(loaded.config, listings, sources)
    names: dict[FormulaInputs, list[str]] = {}
    for tensor in outputs_of(slices, listings):
        if (inputs := join.inputs(tensor)) is not None:
            names.setdefault(inputs, []).append(tensor.name)
    if problems := loaded.problems(join.findings()):
        raise PlanError(*problems)
    return names


class _Join:
    """Joins the tensors of a result with their models' leaves and parameters, and collects what is wrong."""

    def __init__(self, config: MergeConfig, listings: Listings, sources: Mapping[str, str]):
        self.config = config
        self.listings = listings
        self.sources = sources
        self.method = METHODS[config.merge_method]
        self.misfits: list[Finding] = []
        self.lacking: dict[SlicePart, list[str]] = {}
        """Names of the tensors that a model lacks."""
        self.unset: dict[tuple[DocumentPath, str], list[str]] = {}
        """Names of the tensors without a value of a parameter, by the scope's path and the parameter."""

    def inputs(self, tensor: MergedTensor) -> FormulaInputs | None:
        """The inputs of a tensor's formula; None where its models do not fit one another."""
        slice, config = tensor.slice, self.config
        specs = self._specs(tensor)
        if specs is None:
            return None
        spec, source = specs[slice.reference], self.sources[slice.reference.model]
        dtype = config.out_dtype or config.dtype or spec.dtype.name
        if kind(spec.dtype) != "f" or not spec.size:
            own = ModelInputs(spec.dtype.name, (), source, tensor.offset(slice.reference))
            return FormulaInputs(dtype if kind(spec.dtype) == "f" else own.dtype, (), COPY, (own,))
        base = None if self.method.base == "ignored" else slice.base
        scopes = (slice.parameters, config.parameters)
        shared = self._values(self.method.shared, scopes, tensor, tensor.name, slice.path or slice.listed)
        models: dict[str | None, ModelInputs] = {}
        for part, name in zip(slice.parts, tensor.names, strict=True):
            wanted = self.method.of_model(part.model == base)
            values = self._values(wanted, (part.parameters, *scopes), tensor, name, part.path)
            source, offset = self.sources[part.model], tensor.offset(part)
            models[part.model] = ModelInputs(specs[part].dtype.name, values, source, offset)
        apart, method = models.pop(base, None), config.merge_method
        return FormulaInputs(dtype, shared, method, tuple(models.values()), apart, not spec.shape)

    def _specs(self, tensor: MergedTensor) -> Mapping[SlicePart, ArraySpec] | None:
        """The tensor's shape and dtype in each model; None where it is missing in one, or another there."""
        parts, specs = tensor.slice.parts, {}
        names = dict(zip(parts, tensor.names, strict=True))
        for part, name in names.items():
            leaf = self.listings[part.model].get(name)
            if leaf is None:
                self.lacking.setdefault(part, []).append(name)
            elif leaf.spec is None:
                message = f"`{name}` of `{shown(part.model)}` is not an array"
                self.misfits.append(Finding(part.path, message))
            else:
                specs[part] = leaf.spec
        if len(specs) < len(parts):
            return None
        shape = specs[parts[0]].shape
        others = [part for part in parts if specs[part].shape != shape]
        for part in others:
            its = specs[part].shape
            message = f"`{names[part]}` has the shape {list(its)} in `{shown(part.model)}`, "
            message += f"and {list(shape)} in `{shown(parts[0].model)}`"
            vocabulary = shape[1:] == its[1:] and not tensor.in_layer
            self.misfits.append(Finding(part.path, message, hint=VOCABULARY if vocabulary else None))
        return None if others else specs

    def _values(
        self,
        parameters: Iterable[Parameter],
        scopes: Sequence[Mapping[str, Setting]],
        tensor: MergedTensor,
        name: str,
        path: DocumentPath,
    ) -> Values:
        """The values of parameters: the first scope that has one for this tensor gives it."""
        values = {}
        for parameter in parameters:
            given = (scope[parameter.name] for scope in scopes if parameter.name in scope)
            settings = (setting.at(name, tensor.t, parameter.convert) for setting in given)
            value = next((value for value in settings if value is not None), parameter.default)
            if value is None:
                self.unset.setdefault((path, parameter.name), []).append(name)
            else:
                values[parameter.name] = value
        return tuple(values.items())

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong with the tensors joined so far."""
        yield from self.misfits
        for part, names in self.lacking.items():
            message = f"`{shown(part.model)}` lacks {few_keys(names)}, which another model of the slice has"
            yield Finding(part.path, message, hint=LACKING)
        for (path, parameter), names in self.unset.items():
            hint = "End the list with a value without a filter: `- value: …`."
            missing = f"the parameter `{parameter}` is missing for {few_keys(names)}"
            message = f"{missing}: no filter is part of the name"
            yield Finding(path, message, hint=hint, code=Code.MISSING_FIELD)


def _missing_layers(slice: Slice, listings: Listings) -> Iterator[Finding]:
    for part in slice.parts:
        if part.layers is None:
            continue
        counts = layer_counts(listings[part.model])
        stop = part.first + part.layers
        if len(counts) > 1:
            stacks = few_keys(counts)
            message = f"`{shown(part.model)}` has several stacks of layers: {stacks}"
            hint = "`slices` are for models with one; merge this one with `models`."
            yield Finding((*part.path, "model"), message, hint=hint)
        elif stop > (have := sum(counts.values())):
            last = f"layers 0 to {have - 1}" if have else "no layers by the names of its tensors"
            message = f"layer {stop - 1} does not exist: `{shown(part.model)}` has {last}"
            yield Finding((*part.path, "layer_range"), message, code=Code.WRONG_VALUE)
