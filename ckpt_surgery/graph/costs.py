"""What evaluating a region of a value reads and holds, in bytes.

All of it is arithmetic on specs, manifests and the regions that functions say they need.
"""

from collections.abc import Iterator

from ckpt_surgery.core.arrays import Region, Shape, covering_chunks
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.graph.nodes import Node, Read

SHORT_RUN = 1 << 15
"""Bytes: reading fewer in one go costs as much."""
READ_SPAN = 1 << 20
"""Bytes that are read in one go at most with gaps between what is wanted."""


def needed(node: Node, region: Region) -> Iterator[tuple[Read, Region]]:
    """Which regions of which leaves an output region is computed from."""
    if isinstance(node, Read):
        yield node, region
        return
    for index, part in node.function.needs(region, [n.spec for n in node.inputs]):
        yield from needed(node.inputs[index], part)


def decoded_bytes(read: Read, region: Region) -> int:
    """Bytes that reading a region takes: of whole chunks, or of its runs in them."""
    manifest = read.leaf.manifest
    if manifest is None:
        return region.size * read.spec.dtype.itemsize
    if manifest.supports_partial_reads:
        return _fetched(manifest, region)
    return (
        covering_chunks(region, manifest.spec.shape, chunk_shape_of(manifest)).size * read.spec.dtype.itemsize
    )


def _fetched(manifest: Manifest, region: Region) -> int:
    """Bytes that are read of raw chunks: short runs cost as much as long ones, or as what is between them."""
    run = stride = manifest.spec.dtype.itemsize
    for axis in reversed(manifest.long_axes):
        extent = min(region.shape[axis], manifest.chunk_shape[axis])
        run, stride = stride * extent, stride * manifest.chunk_shape[axis]
        if run < stride:
            break
    runs = -(-region.size * manifest.spec.dtype.itemsize // max(1, run))
    return runs * min(max(run, SHORT_RUN), stride)


def chunk_shape_of(manifest: Manifest) -> Shape:
    return tuple(max(1, c) for c in manifest.chunk_shape)


def task_bytes(value: Node, region: Region) -> int:
    """Bytes held at most while a region is evaluated, then written: the block and its encoded chunks."""
    written = 2 * region.size * value.spec.dtype.itemsize
    return max(working_set(value, region), written)


def working_set(node: Node, region: Region) -> int:
    """Bytes held at most while a region is evaluated.

    A read holds the block, the decoded chunks that cover it and their encoded bytes (taken to be no
    larger), or what is taken from one raw chunk; a function holds the blocks of its inputs, its result
    and one temporary of its size.
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
    """Narrow inputs of an arithmetic function exist a second time in the type that is computed in."""
    assert not isinstance(node, Read)
    parts = node.function.needs(region, [n.spec for n in node.inputs])
    width = node.spec.dtype.itemsize
    return sum(p.size * width for i, p in parts if node.inputs[i].spec.dtype.itemsize < width)
