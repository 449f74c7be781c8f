"""Checkpoints whose arrays are contiguous bytes in files: raw elements from an offset on.

Most formats other than zarr are like this: once their headers are read, they have leaves with manifests of
raw chunks in files. Reading regions is the same for all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.formats.shared.chunk_reading import read_stored
from ckpt_surgery.storage.failures import named
from ckpt_surgery.storage.listing import FileStat, digest, relative
from ckpt_surgery.storage.reading import stat_file


@dataclass(frozen=True)
class Opaque:
    """An array that is listed although no function can use it; its elements can be compared."""

    why: str
    """Reason, as a predicate: `is an array of dates`."""
    hint: str
    stored: Manifest | None = None
    """Manifest of its elements as untyped bytes; None if the file does not hold them as plain bytes."""
    dtype: np.dtype[Any] | None = None
    """Type of the elements in the file."""

    def refused(self, leaf: Leaf) -> SourceError:
        """The error to raise where the array is read."""
        return named(leaf.key, SourceError(f"it {self.why}", hint=self.hint))

    def typed(self, block: np.ndarray, listed: np.dtype[Any]) -> np.ndarray:
        """Untyped bytes converted to the type that the array is listed with."""
        assert self.dtype is not None
        found: np.ndarray = block.view(self.dtype).astype(listed)
        return found


class RawArraysSource:
    """A checkpoint of contiguous arrays, opened for reading. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        format: str,
        leaves: Mapping[str, Leaf],
        files: Mapping[str, FileStat],
        metadata: Mapping[str, Any],
        step: int | None = None,
        opaque: Mapping[str, Opaque] | None = None,
    ):
        self.path = path
        self.format = format
        self.metadata = metadata
        self.step = step
        self.item: str | None = None
        self._leaves = leaves
        self._files = files
        """Size and time of every file when it was listed, by path."""
        self._opaque = opaque or {}
        """Arrays that no function can use, by the text of their keys."""

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's own order."""
        return self._leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        opaque = self._opaque.get(leaf.key.text)
        if opaque is not None:
            raise opaque.refused(leaf)
        assert leaf.manifest is not None
        return self._read(leaf, leaf.manifest, region)

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of an array that no function can use. Raises SourceError where they cannot be read."""
        opaque = self._opaque.get(leaf.key.text)
        if opaque is None or opaque.stored is None or leaf.spec is None:
            return self.read(leaf, region)  # which raises the reason
        return opaque.typed(self._read(leaf, opaque.stored, region), leaf.spec.dtype)

    def _read(self, leaf: Leaf, manifest: Manifest, region: Region) -> np.ndarray:
        try:
            return read_stored(manifest, region, self._files)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def files(self) -> Iterator[str]:
        """Paths of the files that were listed."""
        yield from self._files

    def fingerprint(self) -> str:
        """Digest of the files' names, sizes and times. Raises SourceError where one is gone."""
        return digest(relative({path: stat_file(path) for path in self._files}))
