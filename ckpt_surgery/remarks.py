"""Warnings of a plan that is correct and may still surprise."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ckpt_surgery.core.arrays import grid_counts
from ckpt_surgery.core.errors import PlanError, Problem, SourceError
from ckpt_surgery.core.folding import ShownKey, fold
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.protocols import ConvertingSource, Source, StoredType
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.graph.nodes import reads
from ckpt_surgery.live.source import FORMAT as TREE
from ckpt_surgery.planner.disguised import converted, used_as_integers
from ckpt_surgery.planner.plan import Plan, Transfer
from ckpt_surgery.source_warnings import disguised, suspects_in

MOST_PATTERNS = 3
"""Number of patterns of keys that a warning lists."""


def filled_chunks(plan: Plan) -> tuple[str, ...]:
    """A warning that counts the chunks which are read and not stored, so that they have the fill value.

    It is one sentence, or none where no chunk is missing. Chunks of formats that leave out chunks of the fill
    value as a rule (`Format.sparse`) do not count.
    """
    dense = {i.name for i in plan.inputs if i.format != TREE and not formats.named(i.format).sparse}
    lacking: dict[tuple[str, str], int] = {}
    for step in plan.steps:
        for read in reads(step.value):
            if read.source in dense and (count := _lacking(read.leaf)):
                lacking[read.source, read.leaf.key.printed] = count
    if not lacking:
        return ()
    several = len(plan.inputs) > 1
    patterns = [f.key for f in fold([ShownKey(_name(*one, several)) for one in lacking])]
    listed = ", ".join(f"`{pattern}`" for pattern in patterns[:MOST_PATTERNS])
    more = f" and {len(patterns) - MOST_PATTERNS} more" if len(patterns) > MOST_PATTERNS else ""
    count = sum(lacking.values())
    chunks, are = ("chunk", "is not stored and has") if count == 1 else ("chunks", "are not stored and have")
    return (f"{count} {chunks} of {listed}{more} {are} the fill value",)


def dequantized(plan: Plan, sources: Mapping[str, Source]) -> tuple[str, ...]:
    """A warning that counts the leaves which are read as another type than that in which they are stored.

    It is one sentence, or none where there are no such leaves. Raises SourceError, with their keys, where the
    plan reads leaves that are stored in types which cannot be read.
    """
    found = list(_converted(plan, sources))
    unread: dict[str, list[str]] = {}
    for leaf, stored in found:
        if not stored.readable:
            unread.setdefault(stored.name, []).append(leaf.key.printed)
    if unread:
        raise SourceError(*(_unread(name, keys) for name, keys in unread.items()))
    counts = Counter(stored.name for _, stored in found).most_common()
    if not counts:
        return ()
    types = ", ".join(f"{count:,} as {name}" if i else name for i, (name, count) in enumerate(counts))
    dtypes = ", ".join(sorted({leaf.spec.dtype.name for leaf, _ in found if leaf.spec is not None}))
    leaves = "1 leaf is" if counts[0][1] == 1 else f"{counts[0][1]:,} leaves are"
    they = "it is" if len(found) == 1 else "they are"
    return (f"{leaves} stored as {types}: {they} dequantized to {dtypes}",)


def _unread(type: str, keys: Sequence[str]) -> Problem:
    leaves, them = ("1 leaf is", "it") if len(keys) == 1 else (f"{len(keys):,} leaves are", "them")
    return Problem(
        f"{leaves} stored as {type}, which cannot be read: {few_keys(keys)}",
        hint=f"Drop {them}, or take the model that this one was made from.",
    )


def _converted(plan: Plan, sources: Mapping[str, Source]) -> Iterator[tuple[Leaf, StoredType]]:
    """Each leaf that is read and stored as a type of its format's own, once."""
    seen: set[tuple[str, str]] = set()
    converting = {name: one for name, one in sources.items() if isinstance(one, ConvertingSource)}
    for step in plan.steps if converting else ():
        for read in reads(step.value):
            source, place = converting.get(read.source), (read.source, read.leaf.key.text)
            stored = None if source is None or place in seen else source.stored_type(read.leaf)
            seen.add(place)
            if stored is not None:
                yield read.leaf, stored


def disguised_bfloat16(plan: Plan, sources: Mapping[str, Source]) -> tuple[str, ...]:
    """A warning that counts the leaves of uint16 that are most likely bfloat16, and are read as integers.

    Raises PlanError where such integers become floating-point numbers: they would be wrong.
    """
    suspects = {name: suspects_in(source) for name, source in sources.items()}
    if not any(suspects.values()):
        return ()
    wrong = converted(plan, suspects)
    if wrong:
        raise PlanError(
            f"{few_keys(wrong)}: integers of uint16 would become floating-point numbers, but T5X kept "
            "bfloat16 as uint16, and the numbers would be wrong",
            hint="Read them as bfloat16: `uint16=\"bfloat16\"`, or `bitcast(x, 'bfloat16')` in the rule.",
        )
    return disguised(used_as_integers(plan, suspects))


def without_checksums(plan: Plan, zarr: int) -> tuple[str, ...]:
    """What is said after a run that wrote new arrays in version 2 of zarr, which has no checksums."""
    if zarr != 2 or not any(step.transfer is Transfer.COMPUTE and step.leaf.nbytes for step in plan.steps):
        return ()
    return ("zarr 2 has no checksums: readers do not notice flipped bits in new arrays, only `verify` does",)


def _name(source: str, key: str, several: bool) -> str:
    return f"{source}:{key}" if several else key


def _lacking(leaf: Leaf) -> int:
    """Number of chunks of an array that are not stored."""
    manifest = leaf.manifest
    if manifest is None or manifest.complete:
        return 0
    counts = grid_counts(manifest.spec.shape, manifest.chunk_shape)
    return prod(counts) - len(manifest.chunks)
