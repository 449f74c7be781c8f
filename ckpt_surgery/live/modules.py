"""Modules of flax's NNX in trees: each is listed as its `nnx.state`, in which a shared part appears once.

flax is not imported: where a tree has its modules, the program has imported it.
"""

import sys
from collections.abc import Callable
from typing import Any


def with_states(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Replace modules by their states; also return a function that makes modules of states again.

    These modules are new ones, and share what the given ones share. Raises the error of jax for a tree that
    it cannot flatten.
    """
    import jax

    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return tree, _same
    treedef: Any
    nodes, treedef = jax.tree_util.tree_flatten(tree, is_leaf=lambda node: isinstance(node, nnx.Pytree))
    places = [i for i, node in enumerate(nodes) if isinstance(node, nnx.Pytree)]
    if not places:
        return tree, _same
    graph, states = nnx.split(tuple(nodes[i] for i in places))
    for number, i in enumerate(places):
        nodes[i] = states.get(number, nnx.State({}))  # without a state: all of it is another module's too

    def with_modules(listed: Any) -> Any:
        parts = treedef.flatten_up_to(listed)
        modules = nnx.merge(graph, nnx.State({number: parts[i] for number, i in enumerate(places)}))
        for number, i in enumerate(places):
            parts[i] = modules[number]
        return treedef.unflatten(parts)

    return treedef.unflatten(nodes), with_modules


def _same(tree: Any) -> Any:
    return tree
