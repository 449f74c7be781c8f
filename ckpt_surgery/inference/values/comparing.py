"""Whether values are equal, element by element; and whether a draft does what was found."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.core.errors import DataError, SurgeryError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.functions.arrays import Node, Read
from ckpt_surgery.inference.expressions.formations import COMPARED, Findings, Formation
from ckpt_surgery.inference.values.reading import Side, budget, evaluated, node_of
from ckpt_surgery.planner.cutting import side_by_side
from ckpt_surgery.planner.plan import Plan, Step

ELEMENTS = 1 << 16
"""Number of elements that are compared at once."""


def equal(made: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all elements are equal, bit for bit; NaN, of which there are many, equals NaN."""
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return False
    flags = ["external_loop", "buffered", "zerosize_ok"]
    pairs = np.nditer([made, wanted], flags, buffersize=ELEMENTS)  # type: ignore[arg-type]
    return all(_equal(one, other) for one, other in pairs)


def _equal(made: np.ndarray, wanted: np.ndarray) -> bool:
    if made.tobytes() == wanted.tobytes():
        return True
    if made.dtype.kind not in "fcV":
        return False
    nan = made != made
    same = np.array_equal(nan, wanted != wanted)
    return bool(same and made[~nan].tobytes() == wanted[~nan].tobytes())


def makes(value: Node, leaf: Leaf, source: Side, target: Side) -> bool:
    """Whether a value over the leaves of the source is what a leaf of the target holds.

    Raises SurgeryError where the value has no result.
    """
    assert target.read is not None, "values are compared where there are values"
    if value.spec != leaf.spec:
        return False
    block = side_by_side([value, Read("target", leaf)], budget(source))
    return all(
        equal(evaluated(value, region, source), target.read(leaf, region))
        for region in chunk_regions(value.spec.shape, block)
    )


def equal_elements(one: Formation, source: Side, target: Side) -> bool:
    """Whether a formation makes its leaf of the target."""
    leaf = target.leaves[one.target]
    try:
        node = node_of(one.value, [source.leaves[key] for key in one.sources])
        return makes(node, leaf, source, target)
    except SurgeryError:
        return False  # an expression without a result for these leaves makes none


def structure_problems(plan: Plan, findings: Findings, target: Mapping[str, Leaf]) -> list[str]:
    """What a plan does that was not found: other keys, shapes, dtypes, or other leaves that are read."""
    steps = {step.leaf.key.text: step for step in plan.steps}
    open_keys = {key for one in findings.undecided for key in one.targets}
    wanted = [key for key in target if key not in open_keys]
    problems = []
    missing = [key for key in wanted if key not in steps]
    if missing:
        problems.append(f"the draft does not make {_few(missing)}")
    more = [key for key in steps if key not in target]
    if more:
        problems.append(f"the draft makes {_few(more)}, which the target does not have")
    sources = {one.target: set(one.sources) for one in findings.formations}
    for key in wanted:
        if key in steps:
            problems += _step_problems(steps[key], target[key], sources.get(key))
    return problems


def _step_problems(step: Step, wanted: Leaf, sources: set[str] | None) -> Iterator[str]:
    key = shown(wanted.key.printed)
    if step.leaf.spec != wanted.spec:
        yield f"`{key}` would be {step.leaf.spec}, and is {wanted.spec} in the target"
    read = {name for _, name in step.sources}
    if sources is not None and read != sources:
        yield f"`{key}` would be made of {_few(sorted(read))}, and not of {_few(sorted(sources))}"


def value_problems(
    plan: Plan,
    findings: Findings,
    source: Side,
    target: Side,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """The keys of the target, with the reason, whose elements are not those that the plan makes.

    Only those are compared whose values are said to be equal. `progress` is called with the bytes of each.
    """
    compared = {one.target for one in findings.formations if one.evidence in COMPARED}
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


def _few(keys: list[str]) -> str:
    return few([f"`{shown(key)}`" for key in keys])
