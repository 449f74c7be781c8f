"""The one source, sink and encoder of formats that are described by plain data.

The encoder says in the same words for all formats which leaves one cannot hold.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import NONE_KNOWN, Encoder, EncoderDetails, Output, TaskResult
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.registry import FilePlan, Limits, Listing
from ckpt_surgery.storage.failures import about_key
from ckpt_surgery.storage.listing import digest, relative
from ckpt_surgery.storage.reading import opened, stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record
from ckpt_surgery.storage.regions import are_contiguous, put_pieces


class ListedSource:
    """The source of every checkpoint that is listed as plain data. Safe to use from several threads."""

    def __init__(
        self, path: str, format: str, listing: Listing, rest: Callable[[], Listing] | None = None
    ) -> None:
        """`rest`: lists the leaves when they are first asked for; `listing` is then without them."""
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
            return (os.path.join(directory.path, name) for name in directory.walked())
        return iter(dict.fromkeys((*self._listing.files, *self._listing.expected_files)))

    def fingerprint(self) -> str:
        directory = self._first.directory
        if directory is not None:
            return digest({name: stat for name, stat in directory.walked().items() if name != RECORD_NAME})
        return digest(relative({path: stat_file(path) for path in self._listing.files}))


class PlannedSink:
    """A `Sink` that writes these files into a directory. They are whole once it has finished.

    It is the `Writer` of all its workers, too: it buffers nothing. Safe to use from several threads.
    """

    def __init__(self, directory: Path, plans: Sequence[FilePlan], outputs: Sequence[Output]):
        self.outputs, self._directory = outputs, directory
        self._plans = {directory / plan.name: plan for plan in plans}
        files = self._plans.items()
        self._arrays = {text: (path, array) for path, plan in files for text, array in plan.arrays.items()}
        """The file and the place of every array, by the text of its leaf's key."""

    def create(self) -> None:
        """Make every file in its full size, with everything but the elements."""
        for path, plan in self._plans.items():
            put_pieces(path, plan.pieces, plan.size)

    def attach(self, worker: str) -> "PlannedSink":
        return self

    def finish(self, workers: Sequence[str]) -> None:
        """Add what depends on the elements, such as checksums. Raises SourceError, too."""
        for path, plan in self._plans.items():
            if plan.seal is not None:
                with opened(os.fspath(path)) as written:
                    pieces = plan.seal(written)
                put_pieces(path, pieces)

    def record(self, text: str) -> bool:
        """Put the record beside several files, or into the only one that has room."""
        if len(self._plans) > 1:
            put_record(self._directory / RECORD_NAME, text)
            return True
        ((path, plan),) = self._plans.items()
        pieces = None if plan.record is None else plan.record(text)
        if pieces is None:
            return False
        put_pieces(path, pieces)
        return True

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        assert output.stored is not None
        path, array = self._arrays[output.leaf.key.text]
        return TaskResult(array.copy(path, output.stored, known))

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which may have any form."""
        path, array = self._arrays[output.leaf.key.text]
        array.write(path, region, block)

    def read(self, output: Output, region: Region) -> np.ndarray:
        path, array = self._arrays[output.leaf.key.text]
        return array.read(path, region)

    def flush(self) -> None:
        """Return at once: everything is in the files already."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        return [os.fspath(self._arrays[output.leaf.key.text][0])]


_KINDS = {LeafKind.STRING: "a string", LeafKind.PRNG_KEY: "a PRNG key, whose type would be lost"}
"""Kinds of leaves that formats may lack a place for, in words."""

NOT_UNICODE = "is not valid Unicode, so it cannot be stored as UTF-8"
"""The problem of a text with half of a surrogate pair, as a predicate."""


@dataclass(frozen=True)
class LimitedEncoder(Encoder):
    """The encoder of a format that is described by `Limits`. Writers can write any grid."""

    limits: Limits
    details: EncoderDetails = field(default_factory=EncoderDetails)

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        limits, (holds, why) = self.limits, self.limits.words
        lacking = _KINDS.keys() - set(limits.kinds)
        sentences = []
        for leaf in leaves:
            if leaf.kind in lacking:
                sentences.append(f"{quoted(leaf)} is {_KINDS[leaf.kind]}; {holds} only; drop it.")
            if leaf.spec is not None and leaf.spec.dtype not in limits.dtypes:
                sentences.append(f"{quoted(leaf)} {dtype_problem(leaf.spec.dtype, why)}")
            if leaf.string is not None and leaf.kind not in lacking and not is_unicode(leaf.string):
                sentences.append(f"{quoted(leaf)} is a string that {NOT_UNICODE}; drop it.")
        more = (wrong_keys, repeated_keys) if limits.more is None else limits.more
        return [*sentences, *(sentence for check in more for sentence in check(leaves))]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        if leaf.spec is None:
            return False
        adopts = self.limits.adopts
        return are_contiguous(manifest) if adopts is None else adopts(leaf, manifest)


def quoted(leaf: Leaf) -> str:
    """The key of a leaf as messages quote it."""
    return f"`{shown(leaf.key.printed)}`"


def dtype_problem(dtype: np.dtype[Any], library: str) -> str:
    """Reason why a library cannot hold a dtype, as a predicate. Only numbers can be cast."""
    castable = dtype.kind not in "OSUMm" and dtype.type is not np.void
    return f"is {dtype.name}, which {library}; {'cast it to another type' if castable else 'drop it'}."


def wrong_keys(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Leaves whose key cannot be encoded as UTF-8."""
    for leaf in leaves:
        if not is_unicode(leaf.key.text):
            yield f"{quoted(leaf)} {NOT_UNICODE}; rename it."


def repeated_keys(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Texts of keys that several leaves have."""
    for text, count in Counter([leaf.key.text for leaf in leaves]).items():
        if count > 1:
            yield same_name(text, count)


def same_name(text: str, count: int) -> str:
    """The problem that this many leaves have the same name."""
    return f"{count} leaves would have the name `{shown(text)}`; rename all but one."


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """The custom metadata as JSON in ASCII characters, without spaces. Raises UsageError."""
    try:
        return json.dumps(dict(metadata), separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata cannot be stored as JSON: {error}") from error
