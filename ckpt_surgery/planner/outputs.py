"""Forms and checks outputs, and decides from manifests how each gets its value: linked, copied or computed.

A dict is flat where a key has a slash in it and no value is a container, as `flax.traverse_util.flatten_dict`
makes it. Leaves that rules rename or add within it get keys like its others.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from ckpt_surgery.core.errors import Code, PlanError, Problem
from ckpt_surgery.core.folding import Notice, few_keys
from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import DataFile, Encoder, Linkable
from ckpt_surgery.core.shardings import misfit, named_sharding, sharding_text
from ckpt_surgery.core.text import number_of
from ckpt_surgery.functions.arrays import Node, Read, reads
from ckpt_surgery.graph.walks import Spare, relinked
from ckpt_surgery.language.expressions.regexes import MatchBudget
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.schema.fields import OutputPolicy, Recipe, ShardingPolicy
from ckpt_surgery.planner.entries import Decisions, Drop
from ckpt_surgery.planner.problems import problems_of
from ckpt_surgery.planner.target import Target

Range = tuple[int, int]
"""Offsets in a file: of the first byte, and of the one after the last."""
ARRAYS = "arrays"
"""Pseudo-format for runs that produce arrays in memory instead of files."""


@dataclass(frozen=True)
class Destination:
    """Facts about the place that the result is written to, as a plan needs them."""

    encoder: Encoder
    """Encoder of its format: what it can hold, and in which chunks."""
    wholly_stored: Callable[[Manifest], bool]
    """Whether every element of an array has stored bytes. Raises SourceError where a file is gone."""
    data_file: Callable[[str], DataFile]
    """Size and file system of a file, by its path. Raises SourceError where it is gone."""
    format: str
    """Name of the format, or ARRAYS."""
    holds_empty: bool
    """Whether it has a place for None and empty containers. Otherwise they are left out."""
    linkable: Callable[[DataFile], Linkable] | None
    """Whether a file can be linked; None: everything is copied.
    Raises StorageError where only links are asked for, and the file system has none."""
    may_link: Callable[[int], bool] = lambda number: True
    """Whether the files of the output of this number may be linked."""
    served: bool = False
    """Whether a store takes the place of links: it copies whole files itself."""
    flat: bool = False
    """Whether names have no levels there, so that dots in them are the convention."""
    staged: bool = False
    """Whether outputs are put together in memory, which takes half of the budget."""


def arrays_in_memory(encoder: Encoder, staged: bool = False) -> Destination:
    """Destination for arrays that stay in memory. `encoder` adopts no stored bytes."""

    def adopt_nothing(stored: Manifest | str) -> NoReturn:
        raise AssertionError(f"{stored}: stored bytes never become an array in memory")

    return Destination(encoder, adopt_nothing, adopt_nothing, ARRAYS, True, None, staged=staged)


@dataclass(frozen=True)
class Transfers:
    """Way in which each output gets its value."""

    stored: Sequence[Manifest | None]
    """The stored bytes that become each output; None: it is computed."""
    copied: Sequence[bool]
    """Whether the stored bytes of each output are copied. Otherwise the files that hold them are linked."""
    dead: int
    """Bytes in linked files that no output uses."""
    linkable: Sequence[bool]
    """Whether the stored bytes of each output could be linked if nothing rewrites any source in place."""


Files = frozenset[str]
"""Paths of files that together hold the stored bytes of one or more outputs, as chunks have them."""
Ranges = Mapping[Files, Mapping[str, list[Range]]]
"""For each such set, of which there are usually few, the ranges of each file that its outputs use."""


def transfers(values: Sequence[tuple[Leaf, Node]], destination: Destination) -> Transfers:
    """Decide whether each output is linked, copied or computed; files that are mostly unused are copied."""
    spare = Spare()
    stored: list[Manifest | None] = []
    """The stored bytes that become each leaf as they are; None where it has to be computed."""
    for leaf, node in values:
        manifest = None if leaf.spec is None else relinked(node, spare)
        if manifest is None or not manifest.complete or not destination.encoder.adopts(leaf, manifest):
            stored.append(None)
        else:
            stored.append(manifest if destination.wholly_stored(manifest) else None)
    files_of, ranges = _grouped(stored)
    files = {path: destination.data_file(path) for path in set().union(*ranges)}
    if destination.linkable is None:
        return Transfers(stored, [one is not None for one in files_of], 0, [False] * len(stored))
    links = {path: destination.linkable(file) for path, file in sorted(files.items())}
    may = [one is None or destination.may_link(number) for number, one in enumerate(files_of)]
    allowed = ranges
    if not all(may):
        _, allowed = _grouped([one if ok else None for one, ok in zip(stored, may, strict=True)])
    alive = _linked(allowed, files, {path for path, can in links.items() if can is Linkable.YES})
    possible = alive
    if Linkable.IF_NEVER_REWRITTEN in links.values() or not all(may):
        possible = _linked(ranges, files, {path for path, can in links.items() if can is not Linkable.NO})
    ways = zip(files_of, may, strict=True)
    copied = [one is not None and not (ok and alive.keys() >= one) for one, ok in ways]
    dead = sum(files[path].size - used for path, used in alive.items())
    linkable = [one is not None and possible.keys() >= one for one in files_of]
    return Transfers(stored, copied, dead, linkable)


def _grouped(manifests: Iterable[Manifest | None]) -> tuple[list[Files | None], Ranges]:
    """For each manifest, the files that hold its bytes; and the ranges of them, in no order."""
    ranges: dict[Files, dict[str, list[Range]]] = {}
    files_of: list[Files | None] = []
    for manifest in manifests:
        if manifest is None:
            files_of.append(None)
            continue
        chunks = [chunk for chunk in manifest.chunks.values() if chunk.inline is None]
        files = frozenset([chunk.file for chunk in chunks])
        used = ranges.setdefault(files, {path: [] for path in files})
        for chunk in chunks:
            used[chunk.file].append((chunk.offset, chunk.offset + chunk.length))
        files_of.append(files)
    return files_of, ranges


def _linked(ranges: Ranges, files: Mapping[str, DataFile], allowed: set[str]) -> dict[str, int]:
    """The `allowed` files that are linked, with the bytes that linked outputs use: at least half of each.

    An output is linked only where all of its files are. Not linking one file can therefore leave another
    with less than half of its bytes in use, so this is repeated until nothing changes.
    """
    used = {needed: {path: _joined(r) for path, r in of_files.items()} for needed, of_files in ranges.items()}
    linked = allowed
    while True:
        in_use: dict[str, list[Range]] = defaultdict(list)
        for needed, of_files in used.items():
            if linked >= needed:
                for path, of_file in of_files.items():
                    in_use[path] += of_file
        alive = {path: sum(stop - start for start, stop in _joined(in_use[path])) for path in linked}
        kept = {path for path in linked if 2 * alive[path] >= files[path].size}
        if kept == linked:
            return alive
        linked = kept


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """The same bytes in as few ranges as possible, in order, without overlaps."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            start, end = joined.pop()
            stop = max(stop, end)
        joined.append((start, stop))
    return joined


Path = tuple[str, ...]
WHERE = ("output", "sharding")
NONE = "none"
"""Value of `output.sharding` by which no sharding is recorded."""
Resharded = tuple[Sequence[Leaf], Sequence[Notice]]
"""Leaves with the shardings that are to be recorded, and warnings about those."""


def without_empty(decisions: Decisions, destination: Destination) -> Decisions:
    """The decisions without empty nodes (None, empty containers), if the destination cannot store those."""
    if destination.holds_empty:
        return decisions
    empty = [entry for entry in decisions.outputs if entry.leaf.kind is LeafKind.EMPTY]
    if not empty:
        return decisions
    format, named = destination.format, few_keys(entry.key.printed for entry in empty)
    left_out = f"{format} cannot store {number_of(len(empty), 'empty node')}, left out: {named}"
    return replace(
        decisions,
        outputs=tuple(entry for entry in decisions.outputs if entry.leaf.kind is not LeafKind.EMPTY),
        drops=(*decisions.drops, *(Drop(entry, None, f"{format} holds no empty nodes") for entry in empty)),
        notices=(*decisions.notices, Notice(left_out)),
    )


def containers(keys: Iterable[str]) -> set[str]:
    """The keys of all containers around leaves."""
    found: set[str] = set()  # from the leaves to the root, so that each container is looked at once
    level = {key.rpartition(SEPARATOR)[0] for key in keys if SEPARATOR in key}
    while level:
        found |= level
        level = {key.rpartition(SEPARATOR)[0] for key in level if SEPARATOR in key}
    return found


def with_dicts(decisions: Decisions, leaves: Mapping[str, Leaf], output: OutputPolicy | None) -> Decisions:
    """Put outputs in flat or nested dicts as the recipe says, by default as the source's `leaves` are."""
    dicts = "keep" if output is None else output.dicts
    flat = flat_dicts([leaf.key for leaf in leaves.values()]) if dicts == "keep" else frozenset([()])
    if not flat:
        return decisions
    change = _nested if dicts == "nested" else partial(_flattened, flat=flat)
    return replace(decisions, outputs=tuple(replace(e, key=change(e.key)) for e in decisions.outputs))


def flat_dicts(keys: Collection[Key]) -> frozenset[Path]:
    """The containers that are flat dicts."""
    named = (key.names for key in keys if key.names and not key.sequences[-1])
    slashed = {names[:-1] for names in named if SEPARATOR in names[-1]}
    nested = {key.names[:i] for key in keys if slashed for i in range(len(key.names) - 1)}
    return frozenset(slashed - nested)


def _nested(key: Key) -> Key:
    """The key with each part between slashes as a component."""
    pairs = zip(key.names, key.sequences, strict=True)
    parts = [(part, is_index) for name, is_index in pairs for part in name.split(SEPARATOR)]
    return Key(tuple(part for part, _ in parts), tuple(is_index for _, is_index in parts))


def _flattened(key: Key, flat: Set[Path]) -> Key:
    """The key with what is below a flat dict as one component."""
    for i in range(len(key.names) - 1):
        if key.names[:i] in flat:
            joined = SEPARATOR.join(key.names[i:])
            return Key((*key.names[:i], joined), (*key.sequences[:i], False))
    return key


def resharded(
    leaves: Sequence[Leaf], loaded: LoadedRecipe, target: Target | None, destination: Destination
) -> Resharded:
    """The leaves with the shardings that the recipe's `output` asks for, if the destination holds any.

    Raises PlanError if it asks for the target's and there is no target, and if a spec does not fit.
    """
    policy = loaded.recipe.output and loaded.recipe.output.sharding
    if policy is None:
        return leaves, ()
    if is_unsharded(loaded.recipe):
        return [replace(leaf, sharding=None) for leaf in leaves], ()
    if not destination.encoder.details.holds_shardings:
        why = "the destination's format has no place for shardings"
        if destination.format == ARRAYS:
            why = "it is for checkpoints; arrays lie where `shardings=` and the target say"
        return leaves, [Notice(f"`output.sharding` is left out: {why}")]
    if isinstance(policy, ShardingPolicy):
        return _by_specs(leaves, policy, loaded)
    return _by_target(leaves, loaded, target)


def is_unsharded(recipe: Recipe) -> bool:
    """True if the recipe's `output` says that no sharding is recorded."""
    return recipe.output is not None and recipe.output.sharding == NONE


def without_shardings(recipe: Recipe) -> Recipe:
    """The recipe with an `output` that records no sharding."""
    output = recipe.output or OutputPolicy()
    return recipe.model_copy(update={"output": output.model_copy(update={"sharding": NONE})})


def _by_target(leaves: Sequence[Leaf], loaded: LoadedRecipe, target: Target | None) -> Resharded:
    if target is None:
        message, hint = "`sharding: target` needs a target", "Give one: `target=PATH`."
        raise PlanError(Problem(message, loaded.place(WHERE), hint, Code.NO_TARGET))
    theirs = {text: leaf.sharding for text, leaf in target.leaves.items() if leaf.sharding is not None}
    given = [
        replace(leaf, sharding=theirs.get(leaf.key.text, leaf.sharding)) if _can_have_one(leaf) else leaf
        for leaf in leaves
    ]
    return given, [] if theirs else [Notice("`sharding: target`: no leaf of the target has a sharding")]


def _by_specs(leaves: Sequence[Leaf], policy: ShardingPolicy, loaded: LoadedRecipe) -> Resharded:
    texts = {pattern: named_sharding(policy.mesh, spec) for pattern, spec in policy.specs.items()}
    unused = dict.fromkeys(policy.specs)
    done: list[Leaf] = []
    misfits: list[Notice] = []
    budget, hint = MatchBudget(), "The first pattern that matches wins: write one for these above it."
    for leaf in leaves:
        matching = (pattern for pattern in policy.specs if budget.fullmatch(pattern, leaf.key.text))
        pattern = next(matching, None) if _can_have_one(leaf) else None
        if pattern is None:
            done.append(leaf)
            continue
        assert leaf.spec is not None
        unused.pop(pattern, None)
        why = misfit(policy.mesh, policy.specs[pattern], leaf.spec.shape)
        if why is not None:
            about = loaded.place((*WHERE, "specs", pattern.pattern)), hint, Code.SHARDING
            misfits.append(Notice("", leaf.key.printed, f" {why}", about=about))
        done.append(replace(leaf, sharding=texts[pattern]))
    if misfits:
        raise PlanError(*problems_of(misfits))
    why = "matches no array that an earlier pattern does not"
    return done, [Notice(f"`output.sharding`: `{pattern.pattern}` {why}") for pattern in unused]


def _can_have_one(leaf: Leaf) -> bool:
    return leaf.kind is LeafKind.ARRAY and leaf.spec is not None


def lost_shardings(values: Sequence[tuple[Leaf, Node]]) -> Iterator[Notice]:
    """Warnings about arrays without a sharding that are made from leaves with one."""
    for leaf, value in values:
        if leaf.kind is LeafKind.ARRAY and leaf.sharding is None and not isinstance(value, Read):
            for old in [read.leaf for read in reads(value) if read.leaf.sharding is not None][:1]:
                shapes = [list(one.spec.shape) for one in (old, leaf) if one.spec is not None]
                lost = f"the sharding {sharding_text(old.sharding or '')} does not survive in "
                after = (
                    f": it was for {shapes[0]}, this is {shapes[-1]}; `output: {{sharding: …}}` gives another"
                )
                yield Notice(lost, leaf.key.printed, after)
