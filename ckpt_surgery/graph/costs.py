"""Bytes that evaluating a region of a value reads, and holds in memory.

They are computed from specs, manifests and the regions that functions need; no data is read.
"""

from collections.abc import Iterator

from ckpt_surgery.core.arrays import Region, Shape, covering_chunks
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.graph.nodes import Node, Read

SHORT_RUN = 1 << 15
"""Bytes of a short run: reading fewer at once takes as long."""
READ_SPAN = 1 << 20
"""Limit on the bytes that are read at once, with the gaps between the parts that are wanted."""


def needed(node: Node, region: Region) -> Iterator[tuple[Read, Region]]:
    """The leaves and their regions that a region of the output is computed from."""
    if isinstance(node, Read):
        yield node, region
        return
    for index, part in node.function.needs(region, [n.spec for n in node.inputs]):
        yield from needed(node.inputs[index], part)


def decoded_bytes(read: Read, region: Region) -> int:
    """The bytes that reading a region takes: those of whole chunks, or of its contiguous runs in raw ones."""
    manifest = read.leaf.manifest
    if manifest is None:
        return region.size * read.spec.dtype.itemsize
    if manifest.supports_partial_reads:
        return _fetched(manifest, region)
    return (
        covering_chunks(region, manifest.spec.shape, chunk_shape_of(manifest)).size * read.spec.dtype.itemsize
    )


def _fetched(manifest: Manifest, region: Region) -> int:
    """The bytes read of raw chunks. A short run counts as SHORT_RUN, or as the distance to the next one."""
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
    written = 2 * region.size * value.spec.dtype.itemsize
    return max(working_set(value, region), written)


def working_set(node: Node, region: Region) -> int:
    """Upper bound of the bytes in memory while a region is evaluated.

    A read holds the block, the decoded chunks that cover it and their encoded bytes (assumed to be no
    larger), or the part that it takes from one raw chunk. A function holds the blocks of its inputs, its
    result and one temporary array of that size.
    """
    result = region.size * node.spec.dtype.itemsize
    if isinstance(node, Read):
        manifest = node.leaf.manifest
        if manifest is None:
            return 2 * result + READ_SPAN
        if manifest.supports_partial_reads:
            return result + min(result, manifest.chunk_nbytes) + min(READ_SPAN, manifest.chunk_nbytes)
        return result + 2 * decoded_bytes(node, region)
    held = peak = 0
    for index, part in node.function.needs(region, [n.spec for n in node.inputs]):
        source = node.inputs[index]
        peak = max(peak, held + working_set(source, part))
        held += part.size * source.spec.dtype.itemsize
    made = node.function.full_copies * node.spec.size * max(4, node.spec.dtype.itemsize) or 2 * result
    return max(peak, held + made + _widened(node, region))


def _widened(node: Node, region: Region) -> int:
    """The bytes of the copies of narrow inputs in the type in which arithmetic is computed."""
    assert not isinstance(node, Read)
    parts = node.function.needs(region, [n.spec for n in node.inputs])
    width = node.spec.dtype.itemsize
    return sum(p.size * width for i, p in parts if node.inputs[i].spec.dtype.itemsize < width)
