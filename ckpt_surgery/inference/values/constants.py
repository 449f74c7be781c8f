"""Leaves of one repeated value, which prove nothing by themselves: they go as others of their family do."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ckpt_surgery.inference.expressions.formations import Formation, Value
from ckpt_surgery.inference.keys.grids import KeyTemplate, Places, places_of
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.sides import Side

ANY_ORDER = "all elements are equal, so any order gives the same"


def of_families(source: Side, target: Side, decided: Mapping[str, Formation]) -> Iterator[Formation]:
    """The formations of leaves that are decided by those of other members of their family.

    A member is decided by the others, where these agree: its sources are the leaves with its own indices in
    the families of the others' sources. All of them have to hold the same repeated value as the leaf itself.
    """
    of_sources, of_targets = places_of(source.grids), places_of(target.grids)
    for family in target.grids:
        members = [decided[key] for key in family.keys if key in decided]
        known = members[0] if members else None
        if known is None or len({_origin(one, of_sources, of_targets) for one in members} | {None}) != 2:
            continue
        origins = [of_sources[key] for key in known.sources]
        for indices, key in family.members.items():
            keys = [origin.members.get(indices) for origin, _ in origins]
            names = tuple(name for name in keys if name is not None)
            if key in decided or len(names) < len(keys) or not same_constant(source, names, target, key):
                continue
            made = replace(known, target=key, sources=names)
            if equal_elements(made, source, target):
                yield made


def _origin(
    one: Formation,
    of_sources: Places,
    of_targets: Places,
) -> tuple[Value, tuple[KeyTemplate, ...]] | None:
    """What a member is made of, where it has the indices of its sources; None where they differ."""
    numbers = of_targets[one.target][1]
    origins = [of_sources[key] for key in one.sources]
    if any(indices != numbers for _, indices in origins):
        return None
    return one.value, tuple(family.template for family, _ in origins)


def same_constant(source: Side, keys: Iterable[str], target: Side, key: str) -> bool:
    """Whether a leaf of the target and these of the source hold one repeated value, the same everywhere."""
    if key not in target.fingerprints or not target.is_array(key):
        return False
    dtype = target.dtype_of(key)
    wanted = target.fingerprints[key][dtype]
    given = (source.after_cast(name, dtype) for name in keys)
    return wanted.constant and all(
        one is not None and one.constant and one.low == wanted.low for one in given
    )
