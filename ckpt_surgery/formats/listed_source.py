"""The one source that reads checkpoints that are listed as plain data, whatever their format."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.registry import Listing
from ckpt_surgery.storage.failures import about_key
from ckpt_surgery.storage.listing import digest, relative
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME


class ListedSource:
    """The source of every checkpoint that is listed as plain data. Safe to use from several threads."""

    def __init__(
        self, path: str, format: str, listing: Listing, rest: Callable[[], Listing] | None = None
    ) -> None:
        """`rest`: what makes the listing of leaves, and of what reading them takes, when they are first asked
        for; `listing` is then without them.
        """
        self.path, self.format = path, format
        self.step, self.item, self.metadata = listing.step, listing.item, listing.metadata
        self.details = listing.details
        self._first, self._rest = listing, rest

    @cached_property
    def _listing(self) -> Listing:
        return self._first if self._rest is None else self._rest()

    def leaves(self) -> Mapping[str, Leaf]:
        return self._listing.leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        listing = self._listing
        with about_key(leaf.key):
            if leaf.unreadable is not None:
                raise SourceError(f"it {leaf.unreadable.why}", hint=leaf.unreadable.hint)
            reader = listing.readers.get(leaf.key.text)
            if reader is not None:
                return reader.read(region, listing.files)
            assert leaf.manifest is not None
            return read_stored(leaf.manifest, region, listing.files, listing.decode, listing.checks)

    def files(self) -> Iterator[str]:
        """Paths of all files, of which those that listing does not need may be missing."""
        directory = self._first.directory
        if directory is not None:
            yield from (os.path.join(directory.path, name) for name in directory.walked())
        else:
            yield from dict.fromkeys((*self._listing.files, *self._listing.expected_files))

    def fingerprint(self) -> str:
        directory = self._first.directory
        if directory is not None:
            return digest({name: stat for name, stat in directory.walked().items() if name != RECORD_NAME})
        return digest(relative({path: stat_file(path) for path in self._listing.files}))
