"""Invert a plan: express the leaves of its first source by the leaves of its result, without data.

From the outputs down to the leaves, each array is a list of regions that outputs hold, with the expressions
that give them; `undoing` takes them through one function.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.selections import whole
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.layout import Reshape
from ckpt_surgery.inference.expressions.expression_text import formation
from ckpt_surgery.inference.expressions.formations import Evidence, Findings, Formation, X
from ckpt_surgery.inference.expressions.source_expressions import (
    Joined,
    concatenated,
    cut,
    of_leaves,
    rows,
    scales,
)
from ckpt_surgery.inference.undoing.undoing import NOT_ALL, Held, Lost, as_dtype, undo_function
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

    @property
    def scaled(self) -> frozenset[str]:
        """Keys of the leaves that come back only if no number leaves the range of its dtype."""
        return frozenset(one.target for one in self.findings.formations if one.why == IN_RANGE)


def invert_plan(plan: Plan, source: str, leaves: Mapping[str, Leaf]) -> Inversion:
    """Invert a plan for its first source, which has this name and these leaves."""
    nodes = _SharedNodes()
    helds: _Helds = defaultdict(list)
    moved: dict[tuple[str, str], str] = {}
    for number, step in enumerate(plan.steps):
        key, value = step.leaf.key.text, step.value
        if isinstance(value, Read):
            moved.setdefault((value.source, value.leaf.key.text), key)
        if not isinstance(value, Read) or value.leaf.kind in HAS_ARRAY:
            spec = value.spec
            held = Held(Region.whole(spec.shape), of_leaves([key], (), spec.shape), spec.dtype, number)
            helds[id(nodes.node(value))].append(held)
    lost = _undo_all(nodes, helds)
    lost |= {(one.source, one.leaf.key.text): _why_dropped(one) for one in plan.dropped}
    formations, irreversible = [], []
    for key in leaves:
        read, output = nodes.leaves.get((source, key)), moved.get((source, key))
        if read is None and output is not None:
            formations.append(Formation(key, (output,), X, Evidence.RECIPE))
            continue
        regions = [] if read is None else merged(read.spec.shape, read.spec.dtype, helds[id(read)])
        if read is not None and [held.region for held in regions] == [Region.whole(read.spec.shape)]:
            expression = as_dtype(regions[0], read.spec.dtype).expression
            why = IN_RANGE if scales(expression) else ""
            formations.append(formation(key, expression, Evidence.RECIPE, why))
        else:
            gaps = "" if read is None else missing(read.spec.shape, regions)
            why = f"{NOT_ALL}: {gaps}" if gaps else NOT_ALL
            irreversible.append(IrreversibleLeaf(key, lost.get((source, key), why)))
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


_Helds = dict[int, list[Held]]
"""Held regions of each array, by the identity of its node."""


def _undo_all(nodes: "_SharedNodes", helds: _Helds) -> dict[tuple[str, str], str]:
    """Propagate held regions down to the leaves: each function after all that use it.

    Returns the reasons why leaves do not come back, by source and key.
    """
    lost: dict[tuple[str, str], str] = {}
    explained: set[int] = set()
    steps: dict[int, int] = defaultdict(int)  # functions undone above each node
    for node in reversed(nodes.applies.values()):
        for held in merged(node.spec.shape, node.spec.dtype, helds.pop(id(node), [])):
            try:
                if steps[id(node)] >= MOST_STEPS:
                    raise Lost(f"undoing it takes more than {MOST_STEPS} functions")
                for number, part in undo_function(node, held):
                    below = id(node.inputs[number])
                    helds[below].append(part)
                    steps[below] = max(steps[below], steps[id(node)] + 1)
            except Lost as error:
                for read in reads(node, explained):
                    lost.setdefault((read.source, read.leaf.key.text), str(error))
    return lost


class _SharedNodes:
    """One node for each value: the same function of the same inputs is the same node."""

    def __init__(self) -> None:
        self.leaves: dict[tuple[str, str], Read] = {}
        """The node of each leaf from which an array is computed, by source and key."""
        self.applies: dict[Any, Apply] = {}
        """In order of creation: each after its inputs."""
        self._known: dict[int, tuple[Node, Node]] = {}
        """Each node that was given, kept so that no other gets its identity, and the one for it."""

    def node(self, value: Node) -> Node:
        """The one node for a value."""
        if isinstance(value, Read):
            return self.leaves.setdefault((value.source, value.leaf.key.text), value)
        for node in inputs_first([value]):
            if id(node) not in self._known:
                self._known[id(node)] = node, self._apply(node)
        return self._known[id(value)][1]

    def _apply(self, node: Apply) -> Node:
        inputs = tuple(
            self.node(child) if isinstance(child, Read) else self._known[id(child)][1]
            for child in node.inputs
        )
        rebuilt = node if inputs == node.inputs else Apply(node.function, inputs)
        return self._without_steps(rebuilt) if isinstance(rebuilt.function, Index) else self._shared(rebuilt)

    def _shared(self, node: Apply) -> Apply:
        function: Any = node.function
        if isinstance(function, HookCall):  # a function of the program may have no hash
            function = id(node)
        return self.applies.setdefault((function, *map(id, node.inputs)), node)

    def _without_steps(self, node: Apply) -> Apply:
        """A subscript with steps, `x[1::2]`, as an index into an axis that is cut: `x[:, 1]`.

        So interleaved halves become regions, which can be joined.
        """
        assert isinstance(node.function, Index)
        shape = node.inputs[0].spec.shape
        cut: list[int] = []
        items: list[Any] = []
        for length, chosen in zip(shape, node.function.picks(whole(node.spec.shape), shape), strict=True):
            step = chosen.step if isinstance(chosen, range) else 0
            if step > 1 and len(chosen) > 1 and len(chosen) * step == length:
                cut += [length // step, step]
                items += [(None, None, None), chosen[0]]
            elif step == 1 and len(chosen):
                cut.append(length)
                items.append((chosen[0], chosen[-1] + 1, None))
            else:
                return self._shared(node)
        if len(cut) == len(shape):
            return self._shared(node)
        parts = self._shared(Apply(Reshape(tuple(cut)), node.inputs))
        taken = self._shared(Apply(Index(tuple(items)), (parts,)))
        same = taken.spec.shape == node.spec.shape
        return taken if same else self._shared(Apply(Reshape(node.spec.shape), (taken,)))


# --- slices of one array ----------------------------------------------------------------------------------


def merged(shape: Shape, dtype: DType, helds: Sequence[Held]) -> list[Held]:
    """Join regions of an array where they meet: one that is whole, if there is one.

    Of several equal ones, that of the first output is used. `dtype`: that of the array.
    """
    regions = sorted(helds, key=lambda held: held.first)
    before = 0
    while len(regions) != before:
        for held in regions:
            if held.region == Region.whole(shape):
                return [held]
        before = len(regions)
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
