"""Walks over the graph of a value: leaves that are read, functions that are applied to them, what they cost.

A region of a value is evaluated from parts: regions of nodes, each of them computed once. A node that several
others need is one part where they need the same region of it. So the number of parts grows with the number of
nodes, not with that of paths through the graph.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeGuard, TypeVar

from ckpt_surgery.core.arrays import Region, Shape, covering_chunks
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.functions.arrays import (
    MOST_GROWTH,
    Apply,
    Node,
    Read,
    below_first,
    inputs_first,
    nodes_of,
    reads,
)
from ckpt_surgery.functions.base import Function

MOST_CHUNKS = 1 << 18
"""Limit on the chunks that the values of a plan have, all together, beyond MOST_GROWTH times those of their
leaves. Values with more are computed."""
MOST_FUNCTIONS = 1 << 22
"""Limit on the functions that the values of a plan are made of, each counted with its inputs: on all that are
made while planning, and on the sum over outputs of what each of them is computed from."""


def streams_of(value: Node) -> tuple[Apply, ...]:
    """The parts of a value that are computed in streams, each after those that it is computed from."""
    return tuple(node for node in inputs_first([value]) if node.streamed)


def with_shared_parts(value: Node) -> Node:
    """The value with parts that are the same function of the same leaves as one node, so computed once.

    An expression that names a norm twice has two nodes for it. Values without streams stay as they are: what
    their parts take is little beside the reading.
    """
    if not isinstance(value, Apply) or not streams_of(value):
        return value
    known: dict[Hashable, Node] = {}
    shared: dict[int, Node] = {}
    for node in inputs_first([value]):
        for read in node.inputs:
            if isinstance(read, Read):
                shared[id(read)] = known.setdefault((read.source, read.leaf.key.text), read)
        inputs = tuple([shared[id(child)] for child in node.inputs])
        form = (type(node.function), repr(node.function), tuple(map(id, inputs)))  # equal: 2 and 2.0
        # A node that other outputs may have stays itself: its stream is then read once for all of them.
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        shared[id(node)] = known.setdefault(form, node if same else Apply(node.function, inputs))
    return shared[id(value)]


@dataclass(eq=False)
class Spare:
    """The chunks that the values of one plan may still have beyond MOST_GROWTH times those of their leaves.

    What a value has made before it turns out to have too many is spent, too: it took time.
    """

    chunks: int = MOST_CHUNKS

    def spend(self, chunks: int) -> bool:
        """Whether so many chunks are left. They are not, afterwards."""
        enough = chunks <= self.chunks
        self.chunks -= chunks if enough else 0
        return enough


def relinked(node: Node, spare: Spare) -> Manifest | None:
    """A manifest of the node's value that refers to stored bytes of the leaves.

    None if any part has to be computed, is not stored as chunks, or has more chunks than are to spare.
    """
    if isinstance(node, Read):
        return node.leaf.manifest
    if node.height == 1:  # by far the most common case; it has no more chunks than the leaves
        stored = [child.leaf.manifest for child in node.inputs if isinstance(child, Read)]
        manifests = [manifest for manifest in stored if manifest is not None]
        return node.function.relink(manifests) if len(manifests) == len(stored) else None
    functions = list(inputs_first([node]))
    if any(type(apply.function).relink is Function.relink for apply in functions):
        return None
    allowed = MOST_GROWTH * sum(_chunks(read.leaf.manifest) for read in reads(node))
    known: dict[Node, Manifest | None] = {}
    for apply, unused in zip(functions, last_uses([apply.inputs for apply in functions]), strict=True):
        stored = [known[child] if isinstance(child, Apply) else child.leaf.manifest for child in apply.inputs]
        manifests = [manifest for manifest in stored if manifest is not None]
        beyond = sum(map(_chunks, manifests)) - allowed
        if len(manifests) < len(stored) or (beyond > 0 and not spare.spend(beyond)):
            return None
        allowed += max(0, beyond)
        known[apply] = apply.function.relink(manifests)
        for child in unused:
            known.pop(child, None)  # long chains would hold a manifest for each function
    return known[node]


def _chunks(manifest: Manifest | None) -> int:
    return 0 if manifest is None else len(manifest.chunks)


def functions_of(value: Node, bases: Set[int]) -> int:
    """The number of functions that a value is made of, with their inputs and the indices in their fields.

    Each counts once. Nodes with the identities `bases` are left out, with all below them.
    """
    nodes = nodes_of(value, set(), ends=bases)
    return sum([node.weight for node in nodes if isinstance(node, Apply) and id(node) not in bases])


def too_many_functions(start: str) -> str:
    """The message for what has more functions than MOST_FUNCTIONS. `start`: the start of the sentence."""
    return f"{start} more than {MOST_FUNCTIONS:,} functions and their inputs"


# --- what a region of a value is evaluated from -------------------------------------------------------------


MOST_REGIONS = 64
"""Limit on the regions of one function's result that are computed apart. Where more are needed, such as by
`x[1:] + x[:-1]` in each of many passes, the smallest region that contains them all is computed."""

Place = tuple[Node, Region]
"""The node of a part, and its region."""
Wanted = tuple[int, Region]
"""Input of a part: another part's number, and a region of its node, which that part contains."""


@frozen(eq=False)
class Part:
    """A region of a node that is evaluated at once."""

    node: Node
    region: Region
    inputs: tuple[Wanted, ...]
    """Inputs of a function, in the order of `Function.needs`; empty if it is computed in a stream."""

    @property
    def nbytes(self) -> int:
        return self.region.size * self.node.spec.dtype.itemsize


def parts_of(node: Node, region: Region) -> list[Part]:
    """All parts that a region is evaluated from, each after its inputs; the last is the region itself.

    The order is that of a walk depth first, so that few results are waiting to be used at any time.
    """
    if not _is_computed(node):
        return [Part(node, region, ())]
    taken = _taken(node, region)
    root: Place = (node, region)
    order = below_first([root], lambda place: [below for below, _ in taken.get(place, ())])
    numbers = {place: number for number, place in enumerate(order)}
    return [
        Part(*place, tuple([(numbers[below], wanted) for below, wanted in taken.get(place, ())]))
        for place in numbers
    ]


def _is_computed(node: Node) -> TypeGuard[Apply]:
    """Whether regions of a node are computed from those of its inputs."""
    return isinstance(node, Apply) and not node.streamed


def _taken(root: Apply, region: Region) -> dict[Place, list[tuple[Place, Region]]]:
    """Parts that each computed part takes, and the region that it takes of each.

    The highest functions come first: everything that needs one of them is higher, and so is known by then.
    Nodes that the region does not need are not visited, such as all but a few of the arrays of a stack.
    """
    needs: dict[Place, list[Place]] = {}
    whole: dict[Node, Region] = {}
    """The one region of each node of which too many are wanted."""
    wanted: dict[Node, dict[Region, None]] = {root: {region: None}}
    waiting: list[tuple[int, int, Apply]] = [(-root.height, id(root), root)]
    while waiting:
        node = heappop(waiting)[2]
        regions: Iterable[Region] = wanted[node]
        if len(wanted[node]) > MOST_REGIONS:
            whole[node] = Region.around(list(regions))
            regions = [whole[node]]
        specs = [child.spec for child in node.inputs]
        for one in regions:
            needs[node, one] = [(node.inputs[i], part) for i, part in node.function.needs(one, specs)]
            for child, part in needs[node, one]:
                if child not in wanted:
                    wanted[child] = {}
                    if _is_computed(child):
                        heappush(waiting, (-child.height, id(child), child))
                wanted[child][part] = None
    return {
        place: [((child, whole.get(child, part)), part) for child, part in below]
        for place, below in needs.items()
    }


T = TypeVar("T", bound=Hashable)


def last_uses(inputs: Sequence[Iterable[T]]) -> list[list[T]]:
    """For each step of an evaluation, the results that no later one needs. `inputs`: what each takes."""
    ends: list[list[T]] = [[] for _ in inputs]
    seen: set[T] = set()
    for step in reversed(range(len(inputs))):
        for used in inputs[step]:
            if used not in seen:
                seen.add(used)
                ends[step].append(used)
    return ends


SHORT_RUN = 1 << 15
"""Bytes of a short run: reading fewer at once takes as long."""
MOST_SCRATCH = 64
"""Bytes at most of what a function holds besides, for each element of a region."""
READ_SPAN = 1 << 20
"""Limit on the bytes that are read at once, with the gaps between the parts that are wanted."""


def needed(node: Node, region: Region) -> Iterator[tuple[Read, Region]]:
    """The leaves and their regions that a region of the output is computed from, each once."""
    return ((part.node, part.region) for part in parts_of(node, region) if isinstance(part.node, Read))


def decoded_bytes(read: Read, region: Region) -> int:
    """The bytes that reading a region takes: those of whole chunks, or of its contiguous runs in raw ones."""
    manifest = read.leaf.manifest
    if manifest is None:
        return region.size * read.spec.dtype.itemsize
    if not manifest.supports_partial_reads:
        decoded = covering_chunks(region, manifest.spec.shape, chunk_shape_of(manifest))
        return decoded.size * read.spec.dtype.itemsize
    # In raw chunks a short run counts as SHORT_RUN, or as the distance to the next one.
    run = stride = manifest.spec.dtype.itemsize
    for axis in reversed(manifest.long_axes):
        extent = min(region.shape[axis], manifest.chunk_shape[axis])
        run, stride = stride * extent, stride * manifest.chunk_shape[axis]
        if run < stride:
            break
    runs = -(-region.size * manifest.spec.dtype.itemsize // max(1, run))
    return runs * min(max(run, SHORT_RUN), stride)


def chunk_shape_of(manifest: Manifest) -> Shape:
    """The chunk shape, with 1 for axes of length 0."""
    return tuple(max(1, c) for c in manifest.chunk_shape)


def task_bytes(value: Node, region: Region) -> int:
    """Upper bound of the bytes in memory while a region is evaluated and written with its encoded chunks."""
    return max(working_set(value, region), 2 * region.size * value.spec.dtype.itemsize)


def working_set(node: Node, region: Region) -> int:
    """Upper bound of the bytes in memory while a region is evaluated."""
    if isinstance(node, Read):
        return _reading(node, region)
    parts = parts_of(node, region)
    steps = [(number, [below for below, _ in part.inputs]) for number, part in enumerate(parts)]
    return peak(steps, [own_bytes(part, parts) for part in parts], kept_bytes(parts))


def peak(steps: Sequence[tuple[int, Sequence[int]]], own: Sequence[int], kept: Sequence[int]) -> int:
    """Upper bound of the bytes in memory while parts are evaluated one after the other.

    `steps`: the number of each part, and those of the parts that it takes: the result of a part is held until
    the last one that takes it is evaluated. `own`, `kept`: the bytes for each step, and for each result.
    """
    held = most = 0
    for (number, _), needed, unused in zip(steps, own, last_uses([below for _, below in steps]), strict=True):
        most = max(most, held + needed)
        held += kept[number] - sum(kept[done] for done in unused)
    return most


def own_bytes(part: Part, parts: Sequence[Part]) -> int:
    """Upper bound of the bytes in memory for a part alone while it is evaluated, without those of its inputs.

    A read holds the block, the decoded chunks that cover it and their encoded bytes (assumed to be no
    larger), or the part that it takes from one raw chunk. A function holds its result, one temporary array of
    that size, and copies of narrow inputs in the type in which arithmetic is computed.
    """
    node = part.node
    if isinstance(node, Read):
        return _reading(node, part.region)
    if node.streamed:
        return 0  # it is there already
    width, function = node.spec.dtype.itemsize, node.function
    result = function.full_copies * node.spec.size * max(4, width) or 2 * part.nbytes
    narrow = [region for n, region in part.inputs if parts[n].node.spec.dtype.itemsize < width]
    scratch = min(function.scratch, MOST_SCRATCH * part.region.size)
    return result + scratch + width * sum(region.size for region in narrow)


def kept_bytes(parts: Sequence[Part]) -> list[int]:
    """The bytes that the result of each part keeps in memory as long as it is held.

    What rearranges one array may give a view of it, which keeps all of that array.
    """
    kept: list[int] = []
    for part in parts:
        node, nbytes = part.node, part.nbytes
        if isinstance(node, Apply) and node.function.is_layout and len(part.inputs) == 1:
            nbytes = max(nbytes, kept[part.inputs[0][0]])
        kept.append(nbytes)
    return kept


def _reading(node: Read, region: Region) -> int:
    """Upper bound of the bytes in memory while a region of a leaf is read."""
    result = region.size * node.spec.dtype.itemsize
    manifest = node.leaf.manifest
    if manifest is None:
        return 2 * result + READ_SPAN
    if manifest.supports_partial_reads:
        return result + min(result, manifest.chunk_nbytes) + min(READ_SPAN, manifest.chunk_nbytes)
    return result + 2 * decoded_bytes(node, region)
