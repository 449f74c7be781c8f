"""Read a pytree in memory as if it were a checkpoint."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.tree import LiveTree, is_deleted
from ckpt_surgery.live.wanted import Wanted

FORMAT = "tree"
"""Name of the format of trees in memory, in plans and reports."""

LARGEST_START = 2**31 - 1
"""The largest index at which jax cuts a slice whose place it learns at run time."""

_numbers = itertools.count(1)


class TreeSource:
    """A pytree in memory, as a source. Safe to use from several threads."""

    format = FORMAT
    step: int | None = None
    item: str | None = None

    def __init__(self, tree: LiveTree, path: str):
        """`path` stands for the tree in messages, as in `(tree)`."""
        self.tree = tree
        self.path = path
        self.metadata: Mapping[str, Any] = {}
        self._fingerprint = f"tree {next(_numbers)}"

    def leaves(self) -> Mapping[str, Leaf]:
        """Leaves by their keys' texts, in the tree's order."""
        return self.tree.leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region, perhaps read-only; of PRNG keys, those of their raw data.

        Raises SourceError for a leaf without a value: one that is only described, one whose memory was given
        away, and one of which another process holds a part of the region.
        """
        assert leaf.spec is not None
        value = self.tree.values[leaf.key.text]
        if isinstance(value, LazyArray):
            return value._read(region) if region.size else np.empty(region.shape, leaf.spec.dtype)
        import jax

        value = self.value(leaf)
        if not isinstance(value, jax.Array):
            index: Any = (*region.slices, ...)  # which gives an array where there are no axes, too
            part: np.ndarray = np.asarray(value)[index].astype(leaf.spec.dtype, copy=False)
            part.flags.writeable = False  # what is computed must not change the program's own array
            return part
        elements = read_shards(value, leaf.spec, region)
        if elements is None:
            raise SourceError(
                f"{self._named(leaf)} is computed with, but other processes hold a part of it",
                hint="Keep or rename it here and compute afterwards, or read it from a checkpoint.",
            )
        return elements

    @property
    def details(self) -> SourceDetails:
        """Lazy arrays of uint16 that come from T5X, and are most likely bfloat16."""
        values = self.tree.values.items()
        disguised = {text for text, value in values if isinstance(value, LazyArray) and value._is_disguised}
        return SourceDetails(disguised_bfloat16=disguised)

    def value(self, leaf: Leaf) -> Any:
        """Object in the tree for a leaf. Raises SourceError if it is only a description, or was deleted."""
        import jax

        value = self.tree.values[leaf.key.text]
        if isinstance(value, jax.ShapeDtypeStruct | Wanted):
            hint = "Give a tree of arrays, or a checkpoint."
            raise SourceError(f"{self._named(leaf)} has a shape and a dtype, and no value", hint=hint)
        if is_deleted(value):
            raise SourceError(
                f"{self._named(leaf)} was deleted: its memory was donated to a function",
                hint="Give the arrays that the function returned, or a checkpoint.",
            )
        return value

    def _named(self, leaf: Leaf) -> str:
        return f"`{shown(leaf.key.printed)}` of {self.path}"

    def files(self) -> Iterable[str]:
        """No files: everything is in memory."""
        return ()

    def fingerprint(self) -> str:
        """Text that differs from that of every other tree of this process.

        Processes that open the same trees in the same order get the same texts.
        """
        return self._fingerprint


def read_shards(array: Any, spec: ArraySpec, region: Region) -> np.ndarray | None:
    """Elements of a region; None if another process holds some of them.

    `array` is a jax.Array, or an array of typed PRNG keys, of which the raw data is read. `spec` describes
    what is read. Of identical shards, one is read; nothing outside the region comes to the host, and where
    the memory of the device is that of the host, a region of one shard is a view.
    """
    # Replicas of a shard count once.
    shards = {Region.of_slices(shard.index, spec.shape): shard.data for shard in array.addressable_shards}
    parts = {part: box for box in shards if (part := box.common(region)) is not None}
    if sum(part.size for part in parts) < region.size:
        return None
    if len(parts) == 1:
        [(part, box)] = parts.items()
        return _on_host(shards[box], part.within(box))
    block = np.empty(region.shape, spec.dtype)
    for part, box in parts.items():
        block[part.within(region)] = _on_host(shards[box], part.within(box))
    return block


def _on_host(shard: Any, cut: tuple[slice, ...]) -> np.ndarray:
    """A part of an array on one device, read-only; of typed PRNG keys, their numbers."""
    import jax

    if jax.numpy.issubdtype(shard.dtype, jax.dtypes.prng_key):
        shard = jax.random.key_data(shard)
    starts, sizes = [c.start for c in cut], tuple(c.stop - c.start for c in cut)
    if sizes != shard.shape and not _is_host(shard) and max(shard.shape) <= LARGEST_START:
        return np.asarray(jax.lax.dynamic_slice(shard, starts, sizes))
    # jax keeps its copy on the host for as long as the array exists: here, that is a short time.
    passing = jax.make_array_from_single_device_arrays(shard.shape, shard.sharding, [shard])
    index: Any = (*cut, ...)  # which gives an array where there are no axes, too
    part: np.ndarray = np.asarray(passing)[index]
    return part


def _is_host(shard: Any) -> bool:
    """True if an array is in memory of the host, which NumPy can see without a copy."""
    (device,) = shard.devices()
    return bool(device.platform == "cpu" or shard.sharding.memory_kind != device.default_memory().kind)
