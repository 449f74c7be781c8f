"""A source and a sink in memory: what is planned and carried out without a file."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import (
    ArraySpec,
    Region,
    Shape,
    covering_chunks,
)
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import (
    Leaf,
    LeafKind,
)
from ckpt_surgery.core.manifests import (
    Codec,
    Manifest,
    raw_codec,
)
from ckpt_surgery.core.protocols import (
    Output,
)


@dataclass
class MemorySource:
    """Arrays by the text of their keys; remembers which regions were read."""

    arrays: Mapping[str, np.ndarray]
    chunks: Mapping[str, Shape] = field(default_factory=dict)
    """Chunk shapes that the manifests tell; arrays that are not named are one chunk each."""
    codec: str = "raw"
    """Name of the chunks' codec in the manifests; all but `raw` are decoded as a whole."""
    path: str = "memory"
    format: str = "memory"
    step: int | None = None
    item: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    """Every region that was read, in that order."""

    def leaves(self) -> Mapping[str, Leaf]:
        return {text: self._leaf(text, array) for text, array in self.arrays.items()}

    def _leaf(self, text: str, array: np.ndarray) -> Leaf:
        spec = ArraySpec(array.shape, array.dtype)
        codec = raw_codec(spec.ndim)
        if self.codec != codec.name:
            codec = Codec(self.codec, codec.permutation, "[]")
        chunks = self.chunks.get(text, tuple(max(1, length) for length in spec.shape))
        return Leaf(Key.parse(text), LeafKind.ARRAY, spec, Manifest(spec, chunks, codec, {}))

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        self.regions.append(region)
        return self.arrays[leaf.key.text][region.slices].copy()

    def files(self) -> Iterable[str]:
        return ()

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
