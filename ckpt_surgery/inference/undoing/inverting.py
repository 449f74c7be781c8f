"""Invert a plan: express the leaves of its first source by the leaves of its result, without data.

From the outputs down to the leaves, each array is a list of regions that outputs hold, with the expressions
that give them; `undoing` takes them through one function.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads
from ckpt_surgery.inference.expressions.expression_text import formation
from ckpt_surgery.inference.expressions.formations import Evidence, Findings, Formation, X
from ckpt_surgery.inference.expressions.layouts import reshaping
from ckpt_surgery.inference.expressions.source_expressions import (
    Joined,
    concatenated,
    cut,
    of_leaves,
    rows,
    scales,
)
from ckpt_surgery.inference.undoing.undoing import NOT_ALL, Held, Lost, as_dtype, before, undo_function
from ckpt_surgery.language.hooks import HookCall
from ckpt_surgery.planner.entries import HAS_ARRAY
from ckpt_surgery.planner.plan import Dropped, Plan

MOST_STEPS = 40
"""Maximum number of functions of one output that are undone."""
IN_RANGE = "exact unless a number leaves the range of its dtype"
"""Reason given with products and quotients by powers of two."""


@frozen()
class IrreversibleLeaf(Document):
    """A leaf of SRC that does not come back."""

    key: str
    """Its key."""
    why: str
    """The reason, such as `dropped by rules[3]`."""


@dataclass(frozen=True)
class Inversion:
    """Inverse of a plan."""

    findings: Findings
    """Its source is the plan's result, its target the plan's first source. Leaves that do not come back have
    no formation."""
    irreversible: tuple[IrreversibleLeaf, ...]
    """Leaves of the first source that do not come back, in its order."""


_Helds = dict[Hashable, list[Held]]
"""Held regions of each array, by its identity."""
_Identity = Callable[[Node], Hashable]


def _identity_in(functions: Iterable[Apply]) -> _Identity:
    """Function that gives the identity of an array: the same for equal functions of the same inputs; of a
    leaf, its source and key. `functions`: each after its inputs."""
    first: dict[Hashable, int] = {}
    known: dict[int, int] = {}

    def identity(node: Node) -> Hashable:
        return (node.source, node.leaf.key.text) if isinstance(node, Read) else known[id(node)]

    for node in functions:
        # A function of the program may have no hash.
        function = id(node) if isinstance(node.function, HookCall) else node.function
        known[id(node)] = first.setdefault((function, node.spec, *map(identity, node.inputs)), id(node))
    return identity


def invert_plan(plan: Plan, source: str, leaves: Mapping[str, Leaf]) -> Inversion:
    """Invert a plan for its first source, which has this name and these leaves."""
    functions = list(inputs_first([step.value for step in plan.steps]))
    identity = _identity_in(functions)
    helds: _Helds = defaultdict(list)
    moved: dict[Hashable, str] = {}
    for number, step in enumerate(plan.steps):
        key, value = step.leaf.key.text, step.value
        if isinstance(value, Read):
            moved.setdefault(identity(value), key)
        if not isinstance(value, Read) or value.leaf.kind in HAS_ARRAY:
            shape = value.spec.shape
            held = Held(Region.whole(shape), of_leaves([key], (), shape), value.spec.dtype, number)
            helds[identity(value)].append(held)
    lost = _undo_all(functions, identity, helds)
    lost |= {(one.source, one.leaf.key.text): _why_dropped(one) for one in plan.dropped}
    formations, irreversible = [], []
    for key, leaf in leaves.items():
        spec, place = leaf.spec, (source, key)
        if place in moved and place not in helds:
            formations.append(Formation(key, (moved[place],), X, Evidence.RECIPE))
            continue
        regions = [] if spec is None else merged(spec.shape, spec.dtype, helds.get(place, ()))
        if spec is not None and [held.region for held in regions] == [Region.whole(spec.shape)]:
            expression = as_dtype(regions[0], spec.dtype).expression
            why = IN_RANGE if scales(expression) else ""
            formations.append(formation(key, expression, Evidence.RECIPE, why))
        else:
            gaps = "" if spec is None else missing(spec.shape, regions)
            why = f"{NOT_ALL}: {gaps}" if gaps else NOT_ALL
            irreversible.append(IrreversibleLeaf(key, lost.get(place, why)))
    outputs = tuple(step.leaf.key.text for step in plan.steps)
    used = {key for formation in formations for key in formation.sources}
    dropped = tuple(key for key in outputs if key not in used)
    findings = Findings(outputs, tuple(leaves), tuple(formations), dropped)
    return Inversion(findings, tuple(irreversible))


def _why_dropped(dropped: Dropped) -> str:
    if dropped.rule is None:
        return dropped.why
    if dropped.why == "drop":
        return f"dropped by {dropped.rule.path}"
    return f"{dropped.why} ({dropped.rule.path})"


def _undo_all(functions: Sequence[Apply], identity: _Identity, helds: _Helds) -> dict[Hashable, str]:
    """Propagate held regions down to the leaves: each function after all that use it, or an equal one.

    Returns the reasons why leaves do not come back, by source and key.
    """
    lost: dict[Hashable, str] = {}
    explained: set[int] = set()
    steps: dict[Hashable, int] = defaultdict(int)  # functions undone above each node
    for node in reversed(functions):
        for held in merged(node.spec.shape, node.spec.dtype, helds.pop(id(node), ())):
            try:
                if steps[id(node)] >= MOST_STEPS:
                    raise Lost(f"undoing it takes more than {MOST_STEPS} functions")
                for number, part in undo_function(node, held):
                    below = identity(node.inputs[number])
                    helds[below].append(part)
                    steps[below] = max(steps[below], steps[id(node)] + 1)
            except Lost as error:
                for read in reads(node, explained):
                    lost.setdefault(identity(read), str(error))
    return lost


# --- slices of one array ----------------------------------------------------------------------------------


def merged(shape: Shape, dtype: DType, helds: Iterable[Held]) -> list[Held]:
    """Join regions of an array where they meet: one that is whole, if there is one.

    Of several equal ones, that of the first output is used. `dtype`: that of the array.
    """
    of_shape: dict[Shape, list[Held]] = {}
    for held in helds:
        of_shape.setdefault(held.cut or shape, []).append(held)
    regions = of_shape.pop(shape, [])
    for other, some in of_shape.items():
        layout = reshaping(shape, other)
        assert layout is not None, "only axes are cut"
        regions += filter(None, (before(layout, held) for held in _joined_all(other, dtype, some)))
    return _joined_all(shape, dtype, regions)


def _joined_all(shape: Shape, dtype: DType, helds: Sequence[Held]) -> list[Held]:
    regions = sorted(helds, key=lambda held: held.first)
    count = 0
    while len(regions) != count:
        for held in regions:
            if held.region == Region.whole(shape):
                return [held]
        count = len(regions)
        for axis in reversed(range(len(shape))):
            alike: dict[object, list[Held]] = {}
            for held in regions:
                rest = [(*ends[:axis], *ends[axis + 1 :]) for ends in (held.region.starts, held.region.stops)]
                alike.setdefault(tuple(rest), []).append(held)
            regions = [held for group in alike.values() for held in _chained(group, axis, dtype)]
    return regions


def _chained(group: Sequence[Held], axis: int, dtype: DType) -> Iterator[Held]:
    """Join regions, alike along all other axes, that follow each other; of two that overlap, the first is
    used."""
    chain: list[Held] = []
    for held in sorted(group, key=lambda held: (held.region.starts[axis], held.first)):
        start, stop = held.region.starts[axis], held.region.stops[axis]
        end = chain[-1].region.stops[axis] if chain else start
        if chain and stop <= end:
            continue
        if start > end:
            yield _joined(chain, axis, dtype)
            chain = []
        elif start < end:
            rest = rows(held.region.shape, axis, end - start, stop - start)
            held = held.of(rest.moved(held.region.starts), cut(rest, held.expression))
        chain.append(held)
    yield _joined(chain, axis, dtype)


def _joined(chain: Sequence[Held], axis: int, dtype: DType) -> Held:
    """Join a chain of adjacent regions along an axis."""
    if len(chain) == 1:
        return chain[0]
    alike = len({held.dtype for held in chain}) == 1
    chain = chain if alike else [as_dtype(held, dtype) for held in chain]
    parts = [held.expression for held in chain]
    expression = concatenated(parts, axis) if alike else Joined(tuple(parts), axis, stacked=False)
    first, last = chain[0].region, chain[-1].region
    stops = tuple(last.stops[i] if i == axis else n for i, n in enumerate(first.stops))
    return Held(Region(first.starts, stops), expression, chain[0].dtype, min(held.first for held in chain))


def missing(shape: Shape, helds: Sequence[Held]) -> str:
    """The gaps between regions as subscripts: `[:, 3:4]`. Empty if they are not ranges along one axis."""
    bounds_of = [list(zip(held.region.starts, held.region.stops, strict=True)) for held in helds]
    axes = {axis for bounds in bounds_of for axis, length in enumerate(shape) if bounds[axis] != (0, length)}
    if len(axes) != 1:
        return ""
    [axis] = axes
    ranges = [(0, 0), *sorted(bounds[axis] for bounds in bounds_of), (shape[axis], shape[axis])]
    gaps = ((end, start) for (_, end), (start, _) in itertools.pairwise(ranges) if start > end)
    return ", ".join(f"[{':, ' * axis}{start}:{stop}]" for start, stop in gaps)
