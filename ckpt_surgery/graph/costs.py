"""Bytes that evaluating a region of a value reads, and holds in memory.

They are computed from specs, manifests and the regions that functions need; no data is read.
"""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.arrays import Region, Shape, covering_chunks
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.graph.walks import Part, last_uses, parts_of

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
