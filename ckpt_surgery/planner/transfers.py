"""How each output's value comes about: by stored bytes that are linked or copied as they are, or computed.

Decided from manifests alone, for the cheapest that the destination can take over.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import DataFile
from ckpt_surgery.graph.nodes import Node, relinked

Range = tuple[int, int]
"""Offsets in a file: of the first byte, and of the one after the last."""


@dataclass(frozen=True)
class Destination:
    """What a plan has to know of where the result goes."""

    unsupported: Callable[[Sequence[Leaf]], list[str]]
    """What its format cannot hold, one sentence each."""
    adopts: Callable[[Leaf, Manifest], bool]
    """Whether stored bytes can become a leaf as they are."""
    wholly_stored: Callable[[Manifest], bool]
    """Whether every element of an array has stored bytes. May read the indexes of shards, and nothing else.
    Raises SourceError where a file is gone."""
    data_file: Callable[[str], DataFile]
    """What is known of a file, by its path. Raises SourceError where it is gone."""
    format: str
    holds_empty: bool
    """Whether it has a place for None and empty containers; else they are left out."""
    device: int | None
    """Number of its file system, which files can be linked within; None: everything is copied."""
    restorable_by: Callable[[Sequence[Leaf]], Mapping[str, str]] = lambda leaves: {}
    """The oldest version of each package that restores these leaves, where that is known."""
    flat: bool = False
    """Whether names have no levels there, so that dots in them are as good as slashes."""
    holds_shardings: bool = False
    """Whether it has a place for shardings."""


@dataclass(frozen=True)
class Transfers:
    """How the value of every output comes about."""

    stored: Sequence[Manifest | None]
    """For each output the stored bytes that become it; None: it is computed."""
    copied: Sequence[bool]
    """For each output whether stored bytes are copied; else the files that they lie in are linked."""
    dead: int
    """Bytes in linked files that no output uses."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Outputs whose stored bytes lie in the same files. There are as a rule few such sets of files."""

    files: frozenset[str]
    """Paths, as chunks have them."""
    ranges: Mapping[str, list[Range]]
    """What is used of each file, in no order."""


def transfers(values: Sequence[tuple[Leaf, Node]], destination: Destination) -> Transfers:
    """How each output comes about.

    A file of which less than half would be used is not linked: what is used of it is copied.
    """
    stored = [adopted(leaf, node, destination) for leaf, node in values]
    group_of = _grouped(stored)
    groups = dict.fromkeys(group for group in group_of if group is not None)
    files = {path: destination.data_file(path) for path in set().union(*(g.files for g in groups))}
    alive = _linked(groups, files, destination.device)
    links = destination.device is not None
    linked = {None, *(group for group in groups if links and alive.keys() >= group.files)}
    dead = sum(files[path].size - used for path, used in alive.items())
    return Transfers(stored, [group not in linked for group in group_of], dead)


def dead_bytes(linked: Iterable[Manifest], data_file: Callable[[str], DataFile]) -> int:
    """Bytes in the files of linked outputs that none of them uses."""
    ranges: dict[str, list[Range]] = defaultdict(list)
    for manifest in linked:
        for chunk in manifest.chunks.values():
            if chunk.inline is None:
                ranges[chunk.file].append((chunk.offset, chunk.offset + chunk.length))
    return sum(data_file(path).size - _nbytes(_joined(used)) for path, used in ranges.items())


def adopted(leaf: Leaf, node: Node, destination: Destination) -> Manifest | None:
    """The stored bytes that become a leaf as they are. None where it has to be computed."""
    if leaf.spec is None:
        return None
    manifest = relinked(node)
    if manifest is None or not manifest.complete or not destination.adopts(leaf, manifest):
        return None
    return manifest if destination.wholly_stored(manifest) else None


def _grouped(manifests: Iterable[Manifest | None]) -> list[_Group | None]:
    """The group of each manifest."""
    groups: dict[frozenset[str], _Group] = {}
    found: list[_Group | None] = []
    for manifest in manifests:
        if manifest is None:
            found.append(None)
            continue
        chunks = manifest.chunks.values()
        files = frozenset([chunk.file for chunk in chunks if chunk.inline is None])
        group = groups.get(files)
        if group is None:
            group = groups[files] = _Group(files, {path: [] for path in files})
        ranges = group.ranges
        for chunk in chunks:
            if chunk.inline is None:
                ranges[chunk.file].append((chunk.offset, chunk.offset + chunk.length))
        found.append(group)
    return found


def _linked(groups: Collection[_Group], files: Mapping[str, DataFile], device: int | None) -> dict[str, int]:
    """The files that are linked, with their bytes that linked outputs use: at least half of each.

    An output is linked where all of its files are, so that one file's going may take others with it.
    """
    used = [(g.files, {path: _joined(ranges) for path, ranges in g.ranges.items()}) for g in groups]
    linked = {path for path, file in files.items() if file.device == device}
    while True:
        ranges: dict[str, list[Range]] = defaultdict(list)
        for needed, of_group in used:
            if linked >= needed:
                for path, found in of_group.items():
                    ranges[path] += found
        alive = {path: _nbytes(_joined(ranges[path])) for path in linked}
        kept = {path for path in linked if 2 * alive[path] >= files[path].size}
        if kept == linked:
            return alive
        linked = kept


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """The same bytes in as few ranges as can be, in order: no byte is in two of them."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            start, end = joined.pop()
            stop = max(stop, end)
        joined.append((start, stop))
    return joined


def _nbytes(ranges: Iterable[Range]) -> int:
    return sum(stop - start for start, stop in ranges)
