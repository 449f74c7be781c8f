"""Finds optimizers' slots whose parameters are renamed while they keep the old names.

Training could not go on from the result: the slots of Adam, `mu` and `nu`, have the names of the parameters.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.notices import FEW, Notice, few_keys
from ckpt_surgery.core.parameters import OPTIMIZER
from ckpt_surgery.planner.plan import Fate, Step

Names = tuple[str, ...]
PARAMS = "params"


def left_slots(steps: Sequence[Step]) -> Iterator[Notice]:
    """A warning that counts slots that keep the names of renamed parameters, with the `mirror` to write."""
    slots = [(step.leaf.key, root) for step in steps if (root := _left_root(step)) is not None]
    parameters = _parameters(steps, {root for _, root in slots})
    left: list[str] = []
    mirrors: dict[Names, dict[Names, None]] = {}
    for key, root in slots:
        pair = _mirrored(key.names, root, parameters)
        if pair is not None:
            left.append(key.text)
            mirrors.setdefault(pair[0], {})[pair[1]] = None
    if not left:
        return
    keep = "1 leaf keeps" if len(left) == 1 else f"{len(left):,} leaves keep"
    written = ", ".join(
        f"{SEPARATOR.join(params)}: [{', '.join(map(SEPARATOR.join, list(trees)[:FEW]))}]"
        for params, trees in mirrors.items()
        if params
    )
    way_out = f"; `mirror: {{{written}}}` renames them too" if written else ""
    yield Notice(f"{keep} the names of parameters that are renamed: {few_keys(left)}{way_out}")


def _left_root(step: Step) -> int | None:
    """The index of the optimizer's component in the key of a leaf that keeps its name; None for others."""
    return _optimizer(step.leaf.key.names) if step.fate is Fate.KEPT else None


def _parameters(steps: Sequence[Step], roots: Set[int]) -> Mapping[Names, Mapping[Names, bool]]:
    """Keys of parameters below each tree that may hold the parameters, with the keys of those trees, and
    whether the parameter is renamed.

    Such a tree ends with `params`, is the whole checkpoint or one of its first level, or lies beside the
    optimizer's: `state/model` beside `state/opt_state`. `roots`: indices of the optimizer's component.
    """
    below: dict[Names, dict[Names, bool]] = defaultdict(dict)
    depths = {0, 1, *(root + 1 for root in roots)}
    for step in steps if roots else ():
        moved = step.fate is Fate.RENAMED or step.fate is Fate.TRANSFORMED
        for _, text in step.sources:
            names = tuple(text.split(SEPARATOR))
            if _optimizer(names) is not None:
                continue
            renamed = moved and text != step.leaf.key.text
            for depth in range(len(names)):
                if depth in depths or names[depth - 1] == PARAMS:
                    trees = below[names[depth:]]
                    trees[names[:depth]] = trees.get(names[:depth], False) or renamed
    return below


def _mirrored(
    names: Names, root: int, parameters: Mapping[Names, Mapping[Names, bool]]
) -> tuple[Names, Names] | None:
    """The tree of parameters that a slot mirrors, and the tree of its slots; None if the parameter stays.

    `root`: index of the optimizer's component. Of several trees of parameters the nearest one counts.
    """
    for start in range(root + 1, len(names)):
        found = parameters.get(names[start:], {})
        trees = [tree for tree in found if len(tree) <= root + 1 or tree[-1] == PARAMS]
        if trees:
            nearest = max(
                trees, key=lambda tree: (_in_common(tree, names), tree[-1:] == (PARAMS,), found[tree])
            )
            return (nearest, names[:start]) if found[nearest] else None
    return None


def _in_common(one: Names, other: Names) -> int:
    """Number of components that both begin with."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _optimizer(names: Names) -> int | None:
    """The index of the component that the state of an optimizer is below; None for other leaves."""
    return next((i for i, name in enumerate(names) if name in OPTIMIZER), None)
