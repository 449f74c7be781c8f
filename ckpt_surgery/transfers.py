"""How each output's value comes about: by stored bytes that are linked or copied as they are, or computed.

Decided from manifests alone, for the cheapest that the destination can take over.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.arrays import DataFile, Leaf, Manifest
from ckpt_surgery.nodes import Node, relinked
from ckpt_surgery.values import frozen

FileName = tuple[str, str]
"""Source name, and a file as its manifests name it."""


@dataclass(frozen=True)
class Destination:
    """What a plan has to know of where the result goes."""

    refusals: Callable[[Sequence[Leaf]], list[str]]
    """What its format cannot hold, one sentence each."""
    adopts: Callable[[Leaf, Manifest], bool]
    """Whether stored bytes can become a leaf as they are."""
    data_file: Callable[[str, str], DataFile]
    """(source name, file of a manifest) → what is known of that file."""
    device: int | None
    """Number of its file system, which files can be linked within; None: everything is copied."""


@frozen()
class Stored:
    """The stored bytes that become an output."""

    manifest: Manifest
    copied: bool
    """They are copied; else the files that they lie in are linked."""


def transfers(
    values: Sequence[tuple[Leaf, Node]], destination: Destination
) -> tuple[list[Stored | None], int]:
    """For each output its stored bytes, None where it is computed; and the dead bytes in linked files.

    A file of which less than half would be used is not linked: what is used of it is copied.
    """
    manifests = [_adopted(leaf, node, destination) for leaf, node in values]
    names = {id(m): _files(m) for m in manifests if m}
    files = {name: destination.data_file(*name) for name in set().union(*names.values())}
    alive = _linked([m for m in manifests if m], names, files, destination.device)
    copies = destination.device is None
    stored = [None if m is None else Stored(m, copies or not alive.keys() >= names[id(m)]) for m in manifests]
    return stored, sum(files[name].size - used for name, used in alive.items())


def _linked(
    manifests: Sequence[Manifest],
    names: Mapping[int, set[FileName]],
    files: Mapping[FileName, DataFile],
    device: int | None,
) -> dict[FileName, int]:
    """The files that are linked, with their bytes that linked outputs use: at least half of each.

    An output is linked where all of its files are, so that one file's going may take others with it.
    """
    linked = {name for name, file in files.items() if file.device == device}
    while True:
        alive = _alive(m for m in manifests if linked >= names[id(m)])
        kept = {name for name in linked if 2 * alive[name] >= files[name].size}
        if kept == linked:
            return {name: alive[name] for name in linked}
        linked = kept


def _adopted(leaf: Leaf, node: Node, destination: Destination) -> Manifest | None:
    if leaf.spec is None:
        return None
    manifest = relinked(node)
    if manifest is None or not manifest.complete or not destination.adopts(leaf, manifest):
        return None
    return manifest


def _files(manifest: Manifest) -> set[FileName]:
    return {(chunk.source, chunk.file) for chunk in manifest.chunks.values() if chunk.inline is None}


def _alive(manifests: Iterable[Manifest]) -> dict[FileName, int]:
    """Bytes of each file that are used; a byte that is used twice counts once."""
    ranges: dict[FileName, set[tuple[int, int]]] = defaultdict(set)
    for manifest in manifests:
        for chunk in manifest.chunks.values():
            if chunk.inline is None:
                ranges[chunk.source, chunk.file].add((chunk.offset, chunk.offset + chunk.length))
    return defaultdict(int, {name: _covered(found) for name, found in ranges.items()})


def _covered(ranges: Iterable[tuple[int, int]]) -> int:
    """How many bytes lie in at least one range of (start, stop)."""
    total = end = 0
    for start, stop in sorted(ranges):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total
