"""Proofs of drafts: compare the structure of their outputs, and the values, element by element.

The draft of `infer` is compared with the target, and that of `invert` with the source that its recipe was run
on, or with random values in place of the source's: any region of them is computed alone, and not kept.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grown
from ckpt_surgery.core.dtypes import converted, is_integer, kind, limits
from ckpt_surgery.core.errors import DataError, SurgeryError
from ckpt_surgery.core.leaves import Leaf, read_regions
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.functions.arrays import Node, Read
from ckpt_surgery.functions.masks import fractions
from ckpt_surgery.graph.evaluating import Reader, evaluate
from ckpt_surgery.inference.expressions.formations import COMPARED, Formation
from ckpt_surgery.inference.values.reading import Side, budget, evaluated, node_of
from ckpt_surgery.planner.cutting import side_by_side
from ckpt_surgery.planner.entries import HAS_ARRAY
from ckpt_surgery.planner.plan import Plan

ELEMENTS = 1 << 16
"""Number of elements compared at once."""
MOST_ELEMENTS = 1 << 26
"""Maximum number of elements compared on random values; each leaf has its share."""
SHARE = (1 << 12, 1 << 20)
"""Minimum and maximum number of elements of a leaf compared on random values."""
BOXES = 8
"""Number of regions of a larger leaf compared on random values."""

Values = Callable[[Region], np.ndarray]
"""Reads or computes a region of an array."""


def equal(actual: np.ndarray, wanted: np.ndarray) -> bool:
    """True if all elements are equal, bit for bit; any NaN equals any other."""
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return False
    flags = ["external_loop", "buffered", "zerosize_ok"]
    pairs = np.nditer([actual, wanted], flags, buffersize=ELEMENTS)  # type: ignore[arg-type]
    return all(_same_bits(one, other) or _same_but_nan(one, other) for one, other in pairs)


def _same_but_nan(actual: np.ndarray, wanted: np.ndarray) -> bool:
    if actual.dtype.kind not in "fcV":
        return False
    nan = actual != actual
    return np.array_equal(nan, wanted != wanted) and _same_bits(actual[~nan], wanted[~nan])


def _same_bits(actual: np.ndarray, wanted: np.ndarray) -> bool:
    return actual.tobytes() == wanted.tobytes()


def differing(
    actual: Values,
    wanted: Values,
    regions: Iterable[Region],
    same: Callable[[np.ndarray, np.ndarray], bool] = equal,
) -> Region | None:
    """The first of these regions in which two arrays differ; None if they are equal."""
    return next((region for region in regions if not same(actual(region), wanted(region))), None)


def makes(value: Node, leaf: Leaf, source: Side, target: Side) -> bool:
    """True if a value over the leaves of the source is equal to a leaf of the target.

    Raises SurgeryError where the value has no result.
    """
    assert target.read is not None, "values are compared where there are values"
    if value.spec != leaf.spec:
        return False
    block = side_by_side([value, Read("target", leaf)], budget(source))
    regions = chunk_regions(value.spec.shape, block)
    wanted = partial(target.read, leaf)
    return differing(lambda region: evaluated(value, region, source), wanted, regions) is None


def equal_elements(formation: Formation, source: Side, target: Side) -> bool:
    """True if a formation makes its leaf of the target."""
    leaf = target.leaves[formation.target]
    try:
        node = node_of(formation.value, [source.leaves[key] for key in formation.sources])
        return makes(node, leaf, source, target)
    except SurgeryError:
        return False  # an expression without a result for these leaves makes none


def value_problems(
    plan: Plan,
    formations: Iterable[Formation],
    source: Side,
    target: Side,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield keys of the target whose elements the plan does not make, with the reason.

    Compares only leaves whose evidence is equal values. `progress` is called with the bytes of each.
    """
    compared = {one.target for one in formations if one.evidence in COMPARED}
    for step in plan.steps:
        key = step.leaf.key.text
        if key in compared and step.leaf.spec is not None and target.leaves[key].spec is not None:
            try:
                if not makes(step.value, target.leaves[key], source, target):
                    yield key, "not every element is equal"
            except DataError as error:
                yield key, error.problems[0].message
            if progress is not None:
                progress(step.leaf.nbytes)


def structure_problems(
    plan: Plan,
    wanted: Mapping[str, Leaf],
    open_keys: Collection[str],
    formations: Iterable[Formation] = (),
    back: bool = False,
) -> list[str]:
    """Differences between the outputs of a draft and the wanted leaves, one sentence each.

    `open_keys`: leaves that the draft leaves out. `formations`: the sources of each leaf. `back`: True for
    a draft of `invert`, which gives back kinds of leaves and lists, too.
    """
    side = "source" if back else "target"
    steps = {step.leaf.key.text: step for step in plan.steps}
    problems = []
    if missing := [key for key in wanted if key not in steps and key not in open_keys]:
        problems.append(f"the draft does not make {_few(missing)}")
    if more := [key for key in steps if key not in wanted]:
        problems.append(f"the draft makes {_few(more)}, which the {side} does not have")
    sources = {one.target: set(one.sources) for one in formations}
    for key, leaf in wanted.items():
        if key not in steps or key in open_keys:
            continue
        made, read = steps[key].leaf, {name for _, name in steps[key].sources}
        flaws = []
        if back and made.kind is not leaf.kind:
            flaws.append(f"be {made.kind}, and is {leaf.kind} in the {side}")
        elif made.spec != leaf.spec:
            flaws.append(f"be {made.spec}, and is {leaf.spec} in the {side}")
        if back and made.key.sequences != leaf.key.sequences:
            flaws.append(f"have the key of a dict where the {side} has a list index, or the reverse")
        if read != sources.get(key, read):
            flaws.append(f"be made of {_few(sorted(read))}, and not of {_few(sorted(sources[key]))}")
        problems += [f"`{shown(leaf.key.printed)}` would {flaw}" for flaw in flaws]
    return problems


def _few(keys: list[str]) -> str:
    return few([f"`{shown(key)}`" for key in keys])


# --- there and back ---------------------------------------------------------------------------------------


def try_on_random_values(there: Plan, back: Plan) -> tuple[list[str], list[str]]:
    """Run both plans, region by region, on random values. `back` reads what `there` makes.

    Returns a sentence without a full stop for each leaf that is not what it was, and the keys of large
    leaves, of which only some regions were compared.
    """
    outputs = {step.leaf.key.text: step.value for step in there.steps}
    forwards = _through(outputs, random_values)
    share = min(max(MOST_ELEMENTS // max(1, len(back.steps)), SHARE[0]), SHARE[1])
    problems, sampled = [], []
    for step in back.steps:
        leaf, flaw = step.leaf, ""
        if leaf.kind in HAS_ARRAY:
            shape = step.value.spec.shape
            if math.prod(shape) > share:
                sampled.append(leaf.key.text)
            restored, wanted = partial(evaluate, step.value, read=forwards), partial(random_values, "", leaf)
            try:
                region = differing(restored, wanted, _samples(shape, share))
            except SurgeryError as error:
                flaw = f"cannot be run on random values: {error.problems[0].message}"
            else:
                if region is not None:
                    bounds = zip(region.starts, region.stops, strict=True)
                    place = ", ".join(f"{start}:{stop}" for start, stop in bounds)
                    flaw = f"has other values at [{place}], on random values"
        else:
            moved = isinstance(step.value, Read) and outputs[step.value.leaf.key.text]
            if not isinstance(moved, Read) or moved.leaf.key.text != leaf.key.text:
                flaw = "is not what it was"
        if flaw:
            problems.append(f"`{shown(leaf.key.printed)}` {flaw}")
    return problems, sampled


def changed(leaves: Mapping[str, Leaf], source: str, there: Plan, back: Plan, read: Reader) -> set[str]:
    """The leaves of a source that do not come back bit for bit. `read` reads the sources of `there`.

    Raises SurgeryError where they cannot be read.
    """
    forwards = _through({step.leaf.key.text: step.value for step in there.steps}, read)
    values = {step.leaf.key.text: step.value for step in back.steps}

    def differs(key: str, leaf: Leaf) -> bool:
        restored, wanted = partial(evaluate, values[key], read=forwards), partial(read, source, leaf)
        return differing(restored, wanted, read_regions(leaf, 64 << 20), _same_bits) is not None

    return {key for key, leaf in leaves.items() if differs(key, leaf)}


def _through(outputs: Mapping[str, Node], read: Reader) -> Reader:
    """Reader of the outputs of a plan, computed from the leaves that `read` reads."""
    return lambda _, leaf, region: evaluate(outputs[leaf.key.text], region, read)


def _samples(shape: Shape, share: int) -> Iterator[Region]:
    """All of an array, or regions from its beginning to its end."""
    if math.prod(shape) <= share:
        yield Region.whole(shape)
        return
    lengths = grown((1,) * len(shape), shape, share // BOXES)
    for number in range(BOXES):
        pairs = list(zip(shape, lengths, strict=True))
        starts = tuple((whole - part) * number // (BOXES - 1) for whole, part in pairs)
        yield Region(starts, tuple(a + part for a, part in zip(starts, lengths, strict=True)))


# --- random values ----------------------------------------------------------------------------------------


def random_values(source: str, leaf: Leaf, region: Region) -> np.ndarray:
    """Read random values for any leaf. They depend only on its key, and on their index.

    Floats are between 1/2 and 32, of either sign, 6 exponents and all mantissas, and integers between 1 and
    32, as far as the dtype has them; none is 0.
    """
    assert leaf.spec is not None, "only arrays are read"
    dtype = leaf.spec.dtype
    key = np.frombuffer(hashlib.sha256(leaf.key.text.encode()).digest()[:16], "<u8").astype(np.uint64)
    drawn = fractions(region, leaf.spec.shape, key)
    exponents = 12 * drawn % 6
    signs = np.where(drawn < 0.5, -1.0, 1.0)
    values = np.ldexp((1 + exponents % 1) * signs, np.floor(exponents).astype(np.int64) - 1)
    if kind(dtype) == "b":
        return np.asarray(values < 0)
    if kind(dtype) == "c":
        return np.asarray(values * (1 + 2j)).astype(dtype)
    if is_integer(dtype):
        values = np.copysign(np.ceil(np.abs(values)), values)
    low, high = limits(dtype)
    if low >= 0:  # unsigned, or float8_e8m0fnu
        values = np.abs(values)
    return converted(np.asarray(np.clip(values, low, high)), dtype)
