"""A plan and the plan that undoes it, tried: structure from metadata, values on random ones in memory."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.leaves import Leaf, read_regions
from ckpt_surgery.core.text import shown
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.graph.evaluating import Reader, evaluate
from ckpt_surgery.inference.values.comparing import equal
from ckpt_surgery.inference.values.random_values import random_region
from ckpt_surgery.planner.entries import HAS_ARRAY
from ckpt_surgery.planner.plan import Plan, Step

MOST_ELEMENTS = 1 << 26
"""Elements that are compared at most; each leaf has its share."""
SHARE = (1 << 12, 1 << 20)
"""Elements of a leaf that are compared at least, and at most."""
COMPARED = 64 << 20
"""Bytes of a leaf's values that are compared at once."""
BOXES = 8
"""Regions of a larger leaf that are compared."""


@dataclass(frozen=True)
class Trial:
    """What came of running a recipe and its inverse on random values."""

    problems: tuple[str, ...]
    """Sentences without a full stop, one for each leaf that is not what it was."""
    sampled: tuple[str, ...]
    """Keys of leaves of which some regions were compared, because they are large."""


def structure_problems(back: Plan, leaves: Mapping[str, Leaf], lost: frozenset[str]) -> tuple[str, ...]:
    """How what comes back differs from the leaves of the source, but for those that are `lost`."""
    made = {step.leaf.key.text: step.leaf for step in back.steps}
    found = [f"`{shown(key)}` does not come back" for key in leaves if key not in made and key not in lost]
    for key, leaf in made.items():
        if key not in leaves:
            found.append(f"`{shown(key)}` is made, which the source does not have")
        else:
            found += [f"`{shown(key)}` {what}" for what in _differences(leaf, leaves[key])]
    return tuple(found)


def _differences(made: Leaf, wanted: Leaf) -> Iterator[str]:
    if made.kind is not wanted.kind:
        yield f"comes back as {made.kind}, and is {wanted.kind} in the source"
    elif made.spec != wanted.spec:
        yield f"comes back as {made.spec}, and is {wanted.spec} in the source"
    if made.key.sequences != wanted.key.sequences:
        yield "has a list index in the source where it comes back with a key of a dict, or the reverse"


def tried(there: Plan, back: Plan) -> Trial:
    """Run both plans, region by region, on random values. `back` reads what `there` makes."""
    outputs = {step.leaf.key.text: step for step in there.steps}
    share = min(max(MOST_ELEMENTS // max(1, len(back.steps)), SHARE[0]), SHARE[1])
    problems, sampled = [], []
    for step in back.steps:
        if step.leaf.kind not in HAS_ARRAY:
            moved = isinstance(step.value, Read) and outputs[step.value.leaf.key.text].value
            if not (isinstance(moved, Read) and moved.leaf.key.text == step.leaf.key.text):
                problems.append(f"`{shown(step.leaf.key.printed)}` is not what it was")
            continue
        if step.value.spec.size > share:
            sampled.append(step.leaf.key.text)
        flaw = _flaw(step, outputs, share)
        if flaw is not None:
            problems.append(f"`{shown(step.leaf.key.printed)}` {flaw}")
    return Trial(tuple(problems), tuple(sampled))


def _flaw(step: Step, outputs: Mapping[str, Step], share: int) -> str | None:
    """What is wrong with the values of a leaf that comes back; None where nothing is."""

    def forwards(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        return evaluate(outputs[leaf.key.text].value, region, _random)

    spec = step.value.spec
    try:
        for region in _regions(spec.shape, share):
            wanted = random_region(step.leaf.key.text, spec, region)
            if not equal(evaluate(step.value, region, forwards), wanted):
                return f"has other values at [{_told(region)}], on random values"
    except SurgeryError as error:
        return f"cannot be run on random values: {error.problems[0].message}"
    return None


def comes_back(leaf: Leaf, source: str, there: Plan, back: Plan, read: Reader) -> bool:
    """Whether all values of a leaf come back, bit for bit. `read` reads leaves of the sources of `there`.

    Raises SurgeryError where they cannot be read.
    """
    assert leaf.spec is not None
    outputs = {step.leaf.key.text: step.value for step in there.steps}
    value = next(step.value for step in back.steps if step.leaf.key.text == leaf.key.text)

    def forwards(_: str, made: Leaf, region: Region) -> np.ndarray:
        return evaluate(outputs[made.key.text], region, read)

    return all(
        evaluate(value, region, forwards).tobytes() == np.asarray(read(source, leaf, region)).tobytes()
        for region in read_regions(leaf, COMPARED)
    )


def _random(source: str, leaf: Leaf, region: Region) -> np.ndarray:
    assert leaf.spec is not None
    return random_region(leaf.key.text, leaf.spec, region)


def _told(region: Region) -> str:
    return ", ".join(f"{a}:{b}" for a, b in zip(region.starts, region.stops, strict=True))


def _regions(shape: Shape, share: int) -> Iterator[Region]:
    """All of an array, or regions at its beginning, at its end and between."""
    if math.prod(shape) <= share:
        yield Region.whole(shape)
        return
    lengths = list(shape)
    while math.prod(lengths) * BOXES > share and max(lengths) > 1:
        longest = max(range(len(lengths)), key=lambda axis: lengths[axis])
        lengths[longest] = -(-lengths[longest] // 2)
    random = np.random.default_rng(0)
    for number in range(BOXES):
        free = [n - part for n, part in zip(shape, lengths, strict=True)]
        drawn = [int(random.integers(n + 1)) for n in free]
        starts = tuple([0] * len(free) if number == 0 else free if number == 1 else drawn)
        yield Region(starts, tuple(a + part for a, part in zip(starts, lengths, strict=True)))
