"""A source and a sink in memory, for tests of the engine."""

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from ckpt_surgery.core.arrays import (
    ArraySpec,
    Region,
    covering_chunks,
)
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import (
    Leaf,
    LeafKind,
)
from ckpt_surgery.core.manifests import (
    Manifest,
    raw_codec,
)
from ckpt_surgery.core.protocols import (
    Output,
)


class MemorySource:
    """Arrays by key, with a chunk grid that is only told."""

    path = "memory"
    format = "memory"
    step = item = None
    metadata: Mapping[str, object] = {}

    def __init__(self, arrays: Mapping[str, np.ndarray], chunks: Mapping[str, tuple[int, ...]] | None = None):
        self.arrays = dict(arrays)
        self.chunks = chunks or {}

    def leaves(self) -> Mapping[str, Leaf]:
        return {text: self._leaf(text, array) for text, array in self.arrays.items()}

    def _leaf(self, text: str, array: np.ndarray) -> Leaf:
        spec = ArraySpec(array.shape, array.dtype)
        manifest = Manifest(spec, self.chunks.get(text, array.shape), raw_codec(array.ndim), {})
        return Leaf(Key.parse(text), LeafKind.ARRAY, spec, manifest)

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        return self.arrays[leaf.key.text][region.slices].copy()

    def fingerprint(self) -> str:
        return "memory"


class MemorySink:
    """Collects what is written, and holds the protocol's promises against the engine."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.writes: dict[str, np.ndarray] = {}
        self.created = self.finished = False
        self.lock = threading.Lock()

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        return []

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        return False

    def adopt(self, output: Output) -> None:
        raise AssertionError("it adopts nothing")

    def create(self, outputs: Sequence[Output]) -> None:
        assert not self.created
        self.created = True
        for output in outputs:
            spec = output.leaf.spec
            assert spec is not None
            self.arrays[output.leaf.key.text] = np.zeros(spec.shape, spec.dtype)
            self.writes[output.leaf.key.text] = np.zeros(spec.shape, int)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        assert self.created
        assert not self.finished
        spec = output.leaf.spec
        assert spec is not None
        assert (block.shape, block.dtype) == (region.shape, spec.dtype)
        assert covering_chunks(region, spec.shape, output.chunks) == region
        with self.lock:
            self.arrays[output.leaf.key.text][region.slices] = block
            self.writes[output.leaf.key.text][region.slices] += 1

    def finish(self) -> None:
        assert not self.finished
        self.finished = True
