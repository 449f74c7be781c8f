"""The tensors of a result: which tensor of each model each one is made of, and where it stands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.errors import PlanError, Problem
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.merging.checks import Finding
from ckpt_surgery.merging.names import is_before_layers, is_buffer, layer_counts, layer_name
from ckpt_surgery.merging.reading import LoadedConfig, in_order
from ckpt_surgery.merging.slices import Listings, Part, Slice

VOCABULARY = "Only models with the same vocabulary are merged: bring the embeddings to one size before."


@dataclass(frozen=True, eq=False)
class Input:
    """A tensor of a model."""

    part: Part
    name: str
    offset: int
    """Number of its layer less that of the result; 0 outside of layers."""
    leaf: Leaf


@dataclass(frozen=True, eq=False)
class Output:
    """A tensor of the result."""

    name: str
    inputs: tuple[Input, ...]
    """One for each model of the slice, in the order of the slice."""
    slice: Slice
    t: float
    """Position of its layer in the slice, from 0 for the first to 1 for the last; 0 outside of layers."""


@dataclass(frozen=True)
class _Wanted:
    """A tensor that the result should have, before it is looked for in the models."""

    name: str
    names: tuple[str, ...]
    """Its name in each model."""
    offsets: tuple[int, ...]
    slice: Slice
    t: float


def outputs_of(loaded: LoadedConfig, slices: Sequence[Slice], listings: Listings) -> list[Output]:
    """The tensors of the result, by name.

    Those outside of layers come from the models of the first slice where they stand before the layers, and of
    the last one otherwise. Raises PlanError where a model lacks a tensor that the others have, and where the
    shapes differ, with every such tensor.
    """
    wanted = [*_outside(slices, listings), *_in_layers(slices, listings)]
    outputs: list[Output] = []
    lacking: dict[Part, list[str]] = {}
    problems: list[Problem] = []
    for one in wanted:
        leaves = [
            listings[part.model].get(name) for part, name in zip(one.slice.parts, one.names, strict=True)
        ]
        missing = [part for part, leaf in zip(one.slice.parts, leaves, strict=True) if leaf is None]
        for part in missing:
            lacking.setdefault(part, []).append(one.names[one.slice.parts.index(part)])
        if not missing:
            outputs.append(_output(one, [leaf for leaf in leaves if leaf is not None]))
            problems += map(loaded.problem, _misfit(outputs[-1]))
    problems += [loaded.problem(_lack(part, names)) for part, names in lacking.items()]
    if problems:
        raise PlanError(*in_order(problems), code=Code.WRONG_VALUE)
    return sorted(outputs, key=lambda output: output.name)


def _output(wanted: _Wanted, leaves: Sequence[Leaf]) -> Output:
    parts = wanted.slice.parts
    inputs = map(Input, parts, wanted.names, wanted.offsets, leaves)
    return Output(wanted.name, tuple(inputs), wanted.slice, wanted.t)


def _names_in(slice: Slice, listings: Listings) -> list[str]:
    """The tensors that any model of a slice has. What is computed from the config counts if all have it."""
    parts = [listings[part.model] for part in slice.parts]
    every = dict.fromkeys(name for listing in parts for name in listing)
    return [name for name in every if not is_buffer(name) or all(name in listing for listing in parts)]


def _outside(slices: Sequence[Slice], listings: Listings) -> Iterator[_Wanted]:
    for slice, before in ((slices[0], True), (slices[-1], False)):
        for name in _names_in(slice, listings):
            if layer_name(name) is None and is_before_layers(name) is before:
                count = len(slice.parts)
                yield _Wanted(name, (name,) * count, (0,) * count, slice, 0.0)


def _in_layers(slices: Sequence[Slice], listings: Listings) -> Iterator[_Wanted]:
    begin = 0
    for slice in slices:
        counts = layer_counts(name for part in slice.parts for name in listings[part.model])
        if slice.layers is None:
            for stack, count in counts.items():
                yield from _layers(slice, listings, stack, 0, count)
        else:
            for stack in counts:
                yield from _layers(slice, listings, stack, begin, slice.layers)
            begin += slice.layers


def _layers(slice: Slice, listings: Listings, stack: str, begin: int, count: int) -> Iterator[_Wanted]:
    """The tensors of `count` layers of the result, from `begin` on."""
    found: dict[tuple[int, str], None] = {}
    every = [listings[part.model] for part in slice.parts]
    for part, listing in zip(slice.parts, every, strict=True):
        for parts in filter(None, map(layer_name, listing)):
            index = parts.layer - part.first
            if parts.stack == stack and 0 <= index < count:
                found[index, parts.rest] = None
    for index, rest in found:
        names = tuple(f"{stack}.{part.first + index}.{rest}" for part in slice.parts)
        if is_buffer(rest) and not all(name in listing for name, listing in zip(names, every, strict=True)):
            continue
        offsets = tuple(part.first - begin for part in slice.parts)
        t = index / (count - 1) if count > 1 else 1.0
        yield _Wanted(f"{stack}.{begin + index}.{rest}", names, offsets, slice, t)


# --- problems ---------------------------------------------------------------------------------------------


def _lack(part: Part, names: Sequence[str]) -> Finding:
    message = f"`{shown(part.model)}` lacks {few_keys(names)}, which another model of the slice has"
    hint = (
        "Models of one architecture are merged. A head that is tied to the embeddings is saved by some only."
    )
    return Finding(part.path, message, hint)


def _misfit(output: Output) -> Iterator[Finding]:
    """The tensor has another shape in one of the models, or is no array."""
    first, *others = output.inputs
    for one in output.inputs:
        if one.leaf.spec is None:
            yield Finding(one.part.path, f"`{one.name}` of `{shown(one.part.model)}` is not an array")
            return
    assert first.leaf.spec is not None
    for other in others:
        assert other.leaf.spec is not None
        mine, its = first.leaf.spec.shape, other.leaf.spec.shape
        if mine != its:
            message = (
                f"`{other.name}` has the shape {list(its)} in `{shown(other.part.model)}`, "
                f"and {list(mine)} in `{shown(first.part.model)}`"
            )
            vocabulary = mine[1:] == its[1:] and layer_name(output.name) is None
            yield Finding(other.part.path, message, VOCABULARY if vocabulary else None)
