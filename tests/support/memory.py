"""A source, an encoder and a sink in memory: what is planned and carried out without a file."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, covering_chunks
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Codec, Manifest, raw_codec
from ckpt_surgery.core.protocols import Encoder, Output


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


@dataclass(frozen=True)
class MemoryEncoder(Encoder):
    """Answers with functions: by default it holds everything in any chunks, and adopts nothing."""

    refuses: Callable[[Sequence[Leaf]], list[str]] = lambda leaves: []
    adopting: Callable[[Leaf, Manifest], bool] = lambda leaf, manifest: False
    cuts: Callable[[Leaf, Shape], Shape] = lambda leaf, wanted: wanted

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        return self.refuses(leaves)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        return self.adopting(leaf, manifest)

    def grid(self, leaf: Leaf, wanted: Shape) -> Shape:
        return self.cuts(leaf, wanted)


class MemorySink:
    """Collects what is written, and checks that the engine keeps to the protocol. It is its only writer."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.outputs = outputs
        self.arrays: dict[str, np.ndarray] = {}
        self.writes: dict[str, np.ndarray] = {}
        self.created = self.flushed = self.finished = False
        self.attached: list[int] = []
        self.lock = threading.Lock()

    def create(self) -> None:
        assert not self.created
        self.created = True
        for output in self.outputs:
            spec = output.leaf.spec
            assert spec is not None
            self.arrays[output.leaf.key.text] = np.zeros(spec.shape, spec.dtype)
            self.writes[output.leaf.key.text] = np.zeros(spec.shape, int)

    def attach(self, worker: int) -> "MemorySink":
        assert self.created
        self.attached.append(worker)
        return self

    def adopt(self, output: Output) -> None:
        raise AssertionError("it adopts nothing")

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        assert self.attached
        assert not self.finished
        spec = output.leaf.spec
        assert spec is not None
        assert (block.shape, block.dtype) == (region.shape, spec.dtype)
        assert covering_chunks(region, spec.shape, output.chunks) == region
        with self.lock:
            self.flushed = False
            self.arrays[output.leaf.key.text][region.slices] = block
            self.writes[output.leaf.key.text][region.slices] += 1

    def flush(self) -> None:
        self.flushed = True

    def files(self, output: Output, region: Region) -> tuple[str, ...]:
        return ()

    def finish(self, workers: Sequence[int]) -> None:
        assert self.flushed
        assert not self.finished
        assert list(workers) == self.attached
        self.finished = True
