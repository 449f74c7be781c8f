"""The interfaces between formats and the rest: sources that are read, encoders and sinks that write.

Errors, unless a docstring says otherwise, here and in the formats and the storage below them: reading raises
SourceError for what is missing, damaged or changed, and StorageError where the disk or store refuses; writing
raises StorageError; options raise UsageError. A method that implements a protocol's method has a docstring
only for what it does besides or otherwise.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.text import brief


@dataclass(frozen=True)
class DataFile:
    """A file that holds chunks."""

    path: str
    """Absolute path, with symbolic links resolved."""
    size: int
    """Size in bytes."""
    domain: str
    """The file system, or the bucket, that it lies in. A file can be linked, or copied by a store itself,
    only within its own."""


class Source(Protocol):
    """A checkpoint that can be listed without reading data."""

    path: str
    """Path as the user gave it."""
    format: str
    """Name of the format."""
    step: int | None
    """Step that was chosen in a CheckpointManager directory; None elsewhere."""
    item: str | None
    """Item that was chosen in a composite checkpoint; None elsewhere."""
    metadata: Mapping[str, Any]
    """The user's custom metadata."""

    def leaves(self) -> Mapping[str, Leaf]:
        """Leaves by the text of their keys, in the checkpoint's own order. Reads no array."""

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region."""

    def files(self) -> Iterable[str]:
        """Paths of the files that the checkpoint consists of; some of them can be missing."""

    def fingerprint(self) -> str:
        """A text that changes whenever the checkpoint's files change, made from their names, sizes and times.

        It depends on neither the checkpoint's path nor the process, so saved plans recognize their sources by
        it.
        """


@dataclass(frozen=True)
class Choices:
    """Steps and items at a path that holds several checkpoints."""

    steps: tuple[int, ...] = ()
    """The steps whose saves were finished, ascending."""
    unfinished: tuple[int, ...] = ()
    """The other steps, ascending."""
    items: tuple[str, ...] = ()
    """The items of the chosen step, those without arrays included."""

    __repr__ = brief


@dataclass(frozen=True)
class SourceDetails:
    """Details of an opened checkpoint that only some formats know; the defaults are those of the others.

    A source that knows any has them as its attribute `details`.
    """

    choices: Callable[[], Choices] = Choices
    """Steps or items that the source was chosen from. Reads names only."""
    model_files: Callable[[], Mapping[str, bytes]] = dict
    """The files of the model, such as its config, by name, in a format that holds them beside its arrays.

    Raises SourceError where they cannot be read, UsageError where they are too large to be taken over.
    """
    disguised_bfloat16: Set[str] = frozenset()
    """Texts of the keys of arrays of uint16 that are most likely bfloat16, in a format that stored arrays of
    one dtype as another and did not record it."""
    holds_record: bool = False
    """Whether the record of how a checkpoint was made is part of one of its files."""
    record: str | None = None
    """The text of that record; None where there is none."""
    record_file: str | None = None
    """Path of the file that the format has for the record alone, there or not."""


NO_DETAILS = SourceDetails()
"""The details of a source that has none."""


def details_of(source: Source) -> SourceDetails:
    """The details of any source, also of one that has none."""
    details: SourceDetails = getattr(source, "details", NO_DETAILS)
    return details


@runtime_checkable
class RetypedSource(Protocol):
    """A source whose arrays have dtypes that the checkpoint itself does not record."""

    stored: Source
    """The other source."""


@runtime_checkable
class KeepingSink(Protocol):
    """A sink of a format that keeps config and tokenizer files beside the record, for the way back."""

    @property
    def record_directory(self) -> Path:
        """Directory of the record, which exists once the sink has finished."""


class Linkable(enum.Enum):
    """Whether a file can be linked into the destination."""

    YES = enum.auto()
    """It can: nothing rewrites it in place, or a reflink protects it."""
    IF_NEVER_REWRITTEN = enum.auto()
    """Only the user can say so: programs are in use that rewrite such files in place."""
    NO = enum.auto()
    """It is on another file system."""


@frozen()
class AdoptedFile:
    """A whole file of a source that became a file of the new checkpoint."""

    name: str
    """Path in the new checkpoint, relative to the directory of its record."""
    source: str
    """Absolute path of the source's file, with symbolic links resolved."""
    how: LinkMode
    """`reflink` or `hardlink`, or `copy` where no link was possible."""
    size: int
    """Size in bytes."""
    modified: int
    """Time of the source's last change, in nanoseconds since the epoch."""
    crc32c: int | None = None
    """CRC-32C of the bytes of a copy; None for links."""
    reason: str = ""
    """Reason why it was not linked, in the system's words; empty for links."""
    sample: int | None = None
    """CRC-32C of its sample, see `storage.samples`; None if it was not taken."""


@frozen()
class Companion:
    """A config or tokenizer file that is copied from beside a source."""

    name: str
    """Name in the result's directory."""
    source: str
    """Path of the file that was copied."""
    size: int
    """Size in bytes, in the result."""
    content: bytes | None = None
    """Bytes of the result, where they differ from those of the file; None: the file's own."""


@frozen()
class TaskResult:
    """Checksums and whole files of one task, which computed a region or adopted stored bytes."""

    chunks: Mapping[Shape, int] = field(default_factory=dict)
    """CRC-32C of the stored bytes of each chunk that was copied, by its index in the output's `stored`."""
    files: tuple[AdoptedFile, ...] = ()
    """Whole files that the task brought into the new checkpoint."""
    crc: int | None = None
    """CRC-32C of the elements that were computed; None where stored bytes were adopted."""
    overflowed: int = 0
    """Number of computed elements that are not finite by permission (`allow_nonfinite`)."""


@frozen()
class Output:
    """A leaf that is to be written, and how."""

    leaf: Leaf
    """Key, kind, spec and sharding as they are to be written."""
    chunks: Shape
    """Shape of the chunks that the array is stored in; empty where the leaf has no array."""
    stored: Manifest | None = None
    """Stored bytes that become the leaf without being decoded. None where it is computed in regions."""
    copied: bool = False
    """Whether the stored bytes are copied. Otherwise the files that hold them are taken whole: linked, or
    copied by the store that they lie in."""


@dataclass(frozen=True)
class EncoderDetails:
    """Abilities that only some formats have as a destination; the defaults are those of the others."""

    links: bool = False
    """Whether a checkpoint can use whole data files of another one. Otherwise stored bytes are copied."""
    holds_shardings: bool = False
    """Whether it has a place for the shardings of arrays."""
    shards_in_stores: bool = False
    """Whether several machines can write one checkpoint to an object store."""
    holds_config: bool = False
    """Whether Hugging Face's libraries load a directory of it, with config files beside the weights."""
    reserves_record: bool = False
    """Whether the record is in the checkpoint's only file, with room that is reserved for it beforehand."""
    restorable_by: Callable[[Sequence[Leaf]], Mapping[str, str]] = lambda leaves: {}
    """Returns the oldest version of each package that restores these leaves; empty: that is not known."""


class Encoder(Protocol):
    """A format as a destination: which leaves it can hold, and in which chunks.

    An encoder is made from options alone. It opens nothing and reads no file, so plans can ask it before
    there is a destination.
    """

    details: EncoderDetails = EncoderDetails()

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Reasons why this format cannot hold these leaves: one sentence for each problem, with the key.

        An empty list means that it can hold them. The leaves are a tree: no key is both a leaf and a
        container. Empty nodes are passed only to formats that hold them.
        """

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether these stored bytes can become the leaf without being decoded."""

    def grid(self, leaf: Leaf, wanted: Shape) -> Shape:
        """The chunk shape nearest to `wanted` whose chunks can be written independently of each other.

        Two writers, in two threads or two processes, never touch the same byte when each writes whole
        chunks of this grid. The result depends only on `wanted` and on the leaf's spec, kind and sharding,
        and a result given as `wanted` comes back unchanged. `wanted` has no zeros. By default a format
        can write any grid.
        """
        return wanted


NONE_KNOWN: Mapping[Shape, int] = MappingProxyType({})
"""No checksums of an earlier process."""


class Writer(Protocol):
    """One worker's access to a checkpoint that is being written. Safe to use from several threads."""

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Link or copy the stored bytes of an output. Repeating it changes nothing.

        `known` are checksums of chunks that an earlier process copied, as `TaskResult.chunks` has them: a
        chunk whose bytes are there and have its checksum is not copied again.
        """

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which consists of whole chunks of the output's grid.

        `block` has the region's shape and the leaf's dtype, and must not change before `flush` returns.
        """

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region that a writer of this name wrote, perhaps in an earlier process.

        The region consists of whole chunks of the output's grid. Raises SurgeryError where they are
        not there.
        """

    def flush(self) -> None:
        """Hand everything written so far to the system: killing the process loses none of it.

        Publication synchronizes the files with the disk.
        """

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """Files that hold a region that this writer wrote or adopted, or directories of its own.

        A shard synchronizes them, and nothing of other writers, with the disk. None in an object store.
        """


class Sink(Protocol):
    """A checkpoint that is being written into a directory of its own, as one process sees it.

    Any number of processes open a sink on the same directory with the same options and outputs. Exactly
    one of them calls `create` first, and exactly one calls `finish` last.
    """

    outputs: Sequence[Output]
    """Leaves of the checkpoint, in its order."""

    def create(self) -> None:
        """Make the files that all writers share: headers, full sizes, metadata of arrays.

        Repeated after a crash, it keeps what writers have written.
        """

    def attach(self, worker: str) -> Writer:
        """A writer of this name, also for a worker that was killed and begins again.

        Names consist of letters, digits and `_`. Workers with different names write different chunks, or the
        same ones with the same bytes, where a task was done twice.
        """

    def finish(self, workers: Sequence[str]) -> None:
        """Complete the checkpoint from what these workers flushed: indexes, metadata, commit files.

        It can be repeated, also after a crash in its middle.

        Whether every element was written is the engine's responsibility, so formats do not check it.
        """

    def record(self, text: str) -> bool:
        """Put the record of how the checkpoint was made, which is ASCII, into it; called after `finish`.

        It can be repeated, and replaces the earlier record. Returns False, and does nothing, where the format
        has no place for it.
        """
