"""Make equal graph nodes one, so that what several outputs hold of an array meets there."""

from collections.abc import Iterator
from typing import Any

from ckpt_surgery.core.selections import whole
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.layout import Reshape
from ckpt_surgery.language.hooks import HookCall


class SharedNodes:
    """One node for each value: the same function of the same inputs is the same node."""

    def __init__(self) -> None:
        self._leaves: dict[tuple[str, str], Read] = {}
        self._applies: dict[Any, Apply] = {}
        """In the order in which they were made: each after its inputs."""
        self._known: dict[int, Node] = {}
        """The one node for each that was given, by identity."""
        self._given: list[Node] = []
        """Those that were given, so that no other gets the identity of one."""

    def node(self, value: Node) -> Node:
        """The one node for a value."""
        if isinstance(value, Read):
            return self._leaf(value)
        for node in inputs_first([value]):
            if id(node) not in self._known:
                self._given.append(node)
                self._known[id(node)] = self._apply(node)
        return self._known[id(value)]

    def leaf(self, source: str, key: str) -> Read | None:
        """The node of a leaf; None where no array is computed from it."""
        return self._leaves.get((source, key))

    def users_first(self) -> Iterator[Apply]:
        """Every function, each after all that use it."""
        return reversed(self._applies.values())

    def _leaf(self, read: Read) -> Read:
        return self._leaves.setdefault((read.source, read.leaf.key.text), read)

    def _apply(self, node: Apply) -> Node:
        inputs = tuple(
            self._leaf(one) if isinstance(one, Read) else self._known[id(one)] for one in node.inputs
        )
        made = node if inputs == node.inputs else Apply(node.function, inputs)
        if isinstance(made.function, Index):
            return self._without_steps(made)
        return self._one(made)

    def _one(self, node: Apply) -> Apply:
        function: Any = node.function
        if isinstance(function, HookCall):  # a function of the program may have no hash
            function = id(node)
        return self._applies.setdefault((function, *map(id, node.inputs)), node)

    def _without_steps(self, node: Apply) -> Apply:
        """A subscript with steps, `x[1::2]`, as an index into an axis that is cut: `x[:, 1]`.

        So halves that are interleaved become regions, which can be put together.
        """
        assert isinstance(node.function, Index)
        shape = node.inputs[0].spec.shape
        cut: list[int] = []
        items: list[Any] = []
        stepped = False
        for length, chosen in zip(shape, node.function.picks(whole(node.spec.shape), shape), strict=True):
            step = chosen.step if isinstance(chosen, range) else 0
            if step > 1 and len(chosen) > 1 and len(chosen) * step == length:
                cut += [length // step, step]
                items += [(None, None, None), chosen[0]]
                stepped = True
            elif step == 1 and len(chosen):
                cut.append(length)
                items.append((chosen[0], chosen[-1] + 1, None))
            else:
                return self._one(node)
        if not stepped:
            return self._one(node)
        parts = self._one(Apply(Reshape(tuple(cut)), node.inputs))
        taken = self._one(Apply(Index(tuple(items)), (parts,)))
        if taken.spec.shape == node.spec.shape:
            return taken
        return self._one(Apply(Reshape(node.spec.shape), (taken,)))
