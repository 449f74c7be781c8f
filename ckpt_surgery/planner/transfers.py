"""Decide from manifests how each output gets its value: linked or copied from stored bytes, or computed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import DataFile, Encoder, Linkable
from ckpt_surgery.functions.arrays import Node
from ckpt_surgery.graph.walks import Spare, relinked

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
    """Whether every element of an array has stored bytes. Reads nothing but the indexes of shards.
    Raises SourceError where a file is gone."""
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
    """Link, copy or compute each output. A file of which less than half would be used is not linked."""
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
    """The files that are linked, with the number of bytes that linked outputs use: at least half of each.
    They are some of the `allowed` ones.

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
