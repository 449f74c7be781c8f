"""Finds optimizers' slots whose parameters are renamed while they keep the old names.

Training could not go on from the result: the slots of Adam, `mu` and `nu`, have the names of the parameters.
"""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.notices import FEW, Notice, few_keys
from ckpt_surgery.core.parameters import OPTIMIZER
from ckpt_surgery.planner.plan import Fate, Step

Names = tuple[str, ...]


def left_slots(steps: Sequence[Step]) -> Iterator[Notice]:
    """A warning that counts the slots with the names of renamed parameters, with the `mirror` to write."""
    renamed = _renamed(steps)
    slots: list[str] = []
    mirrors: dict[str, dict[str, None]] = {}
    for step in steps if renamed else ():
        names = step.leaf.key.names
        root = _optimizer(names)
        if step.fate is not Fate.KEPT or root is None:
            continue
        start = next((i for i in range(root + 1, len(names)) if names[i:] in renamed), None)
        if start is not None:
            slots.append(step.leaf.key.text)
            params, slot = (SEPARATOR.join(part) for part in (renamed[names[start:]], names[:start]))
            mirrors.setdefault(params, {})[slot] = None
    if not slots:
        return
    keep = "1 leaf keeps" if len(slots) == 1 else f"{len(slots):,} leaves keep"
    written = ", ".join(
        f"{params}: [{', '.join(list(found)[:FEW])}]" for params, found in mirrors.items() if params
    )
    way_out = f"; `mirror: {{{written}}}` renames them too" if written else ""
    yield Notice(f"{keep} the names of parameters that are renamed: {few_keys(slots)}{way_out}")


def _renamed(steps: Sequence[Step]) -> dict[Names, Names]:
    """The keys of renamed parameters, whole and below their first component, with what stands before."""
    found: dict[Names, Names] = {}
    for step in steps:
        if step.fate is not Fate.RENAMED and step.fate is not Fate.TRANSFORMED:
            continue
        for _, text in step.sources:
            names = tuple(text.split(SEPARATOR))
            if text != step.leaf.key.text and _optimizer(names) is None:
                found[names] = ()
                if len(names) > 1:
                    found[names[1:]] = names[:1]
    return found


def _optimizer(names: Names) -> int | None:
    """The index of the component that the state of an optimizer is below; None for other leaves."""
    return next((i for i, name in enumerate(names) if name in OPTIMIZER), None)
