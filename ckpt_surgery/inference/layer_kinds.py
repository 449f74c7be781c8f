"""Layers of several kinds in one numbering: the first three dense, the others with experts.

Where the leaves below some indices differ from those below others, another layout may keep the two apart, so
a family is looked at in parts: one for each kind of layer.
"""

from collections.abc import Iterable

from ckpt_surgery.inference.families import Family

MOST_KINDS = 8
"""Kinds of layers of one numbering: where there are more, they are no kinds."""


def layer_kinds(found: Iterable[Family]) -> list[frozenset[str]]:
    """The keys of the layers of each kind, where one numbering has several; kinds with few layers come first.

    Two layers are of one kind if the same names lie below them.
    """
    below: dict[str, dict[str, set[str]]] = {}
    keys: dict[tuple[str, str], list[str]] = {}
    for family in found:
        if family.template.slots:
            prefix, rest = family.template.texts[0], "{}".join(family.template.texts[1:])
            for numbers, key in family.members.items():
                below.setdefault(prefix, {}).setdefault(numbers[0], set()).add(rest)
                keys.setdefault((prefix, numbers[0]), []).append(key)
    kinds: list[list[str]] = []
    for prefix, layers in below.items():
        alike: dict[frozenset[str], list[str]] = {}
        for number, names in layers.items():
            alike.setdefault(frozenset(names), []).append(number)
        if 1 < len(alike) <= MOST_KINDS:
            kinds += [[key for number in some for key in keys[prefix, number]] for some in alike.values()]
    return [frozenset(kind) for kind in sorted(kinds, key=len)]
