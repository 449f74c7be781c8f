"""How a format describes itself, as plain data.

All descriptions are imported to find out what a path holds, so each imports only what detection takes. Its
source, encoder and sink are named in its `FORMAT`, and imported when a checkpoint is opened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.storage.linking import ReplacedFiles


@dataclass(frozen=True)
class Selection:
    """Which checkpoint is meant in a directory that holds several."""

    step: int | None = None
    """Number of the step; None: the latest committed one."""
    item: str | None = None
    """Name of the item; None: the only one that holds arrays."""


@dataclass(frozen=True)
class SinkOptions:
    """How a checkpoint is to be written. A format refuses what it cannot do, and ignores no option."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata; must be JSON."""
    step: int | None = None
    """Step of a CheckpointManager layout, in which the item is DIRECTORY/STEP/ITEM. None: no such layout."""
    item: str | None = None
    """Name of the item; with a step, None means `default`. Without one, DIRECTORY is the step's directory."""
    link_mode: LinkMode = LinkMode.AUTO
    """How files with stored bytes get into the checkpoint."""
    replaced: ReplacedFiles = field(default_factory=ReplacedFiles)
    """The files that may be hard-linked where `link_mode` is `auto`."""
    zarr: int = 3
    """Version of the zarr specification: 2 or 3. Only version 3 stores checksums."""
    structure_file: bool = False
    """Whether the tree is also written as the MessagePack file that Orbax before 0.5.21 looks for."""
    shard_size: int | None = None
    """Bytes of arrays per file at most, for formats that can be spread over several. None: one file."""
    record_bytes: int = 0
    """Bytes of the record, as JSON text, for formats with `Format.reserves_record`. 0: there will be none."""
    file_name: str | None = None
    """Name of the one file that the checkpoint consists of; None where it is a whole directory.
    Never None where the format's `is_file` is true of the destination's name."""
    existing: str | None = None
    """Path or URL of the step that the item is written for. All other items of it are in the new one too."""
    model_files: Callable[[], Mapping[str, bytes]] = dict
    """Reads the files of the sources' model, for a format that holds them beside the arrays."""


@dataclass(frozen=True)
class Format:
    """A checkpoint format. Its parts are named `package.module:attribute`, and imported when needed."""

    name: str
    """What `--format` and the reports call it."""
    detect: Callable[[str], bool]
    """Whether a path, or the URL of a store, looks like this format, even if damaged.
    Reads names and a few bytes."""
    source: str
    """Name of a function of a path and a `Selection` that opens a `Source`.
    It raises SourceError for a damaged checkpoint, UsageError for a step or item that it cannot have."""
    encoder: str | None = None
    """Name of a function of `SinkOptions` that makes an `Encoder`, without touching the disk.
    It raises UsageError for options that the format cannot follow. None: the format is only read."""
    sink: str | None = None
    """Name of a function of a directory, `SinkOptions` and the outputs that opens a `Sink`.
    The options have been accepted by `encoder`. The directory is a `Path`, or with `stores` perhaps the text
    of a URL. None: the format is only read."""
    stores: bool = False
    """Whether it is written to an object store directly. Otherwise it is written to a local directory, from
    where it is uploaded."""
    check: str | None = None
    """Name of a function of a destination's path and `SinkOptions` that raises UsageError where the format
    cannot be written there. The path need not exist. None: it can be written anywhere."""
    other_files: str | None = None
    """Name of a function of a checkpoint's directory and the relative paths of all files in it, which returns
    the paths of those that are none of the checkpoint's. None: those that its source does not name."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of names. A destination with such a name gets this format unless another one is chosen."""
    is_file: Callable[[str], bool] = lambda name: False
    """Whether a destination of that name is to be one file rather than a directory."""
    shards_in_stores: bool = False
    """Whether several machines can write one checkpoint to an object store."""
    links: bool = False
    """Whether a checkpoint can use whole data files of another one. Otherwise stored bytes are copied."""
    replaces_files: bool = False
    """Whether its writers replace data files and never rewrite them in place. Otherwise a file that shares
    its bytes by a hard link can change with the source."""
    separate_files: bool = False
    """Whether each worker computes into files of its own, which no other worker writes to."""
    shards: bool = False
    """Whether it can be written as several files of a limited size: `SinkOptions.shard_size`."""
    metadata_bytes: int | None = None
    """Largest size of the custom metadata, as JSON; None: no limit."""
    metadata_entries: Mapping[str, str] = field(default_factory=dict)
    """Entries that readers of the format expect in the custom metadata, where there is any."""
    reserves_record: bool = False
    """Whether the record is in the checkpoint's only file, with room that is reserved for it beforehand."""
    holds_config: bool = False
    """Whether Hugging Face's libraries load a directory of it, with config files beside the weights."""
    structure_file: bool = False
    """Whether it can be written with a file of the tree: `SinkOptions.structure_file`."""
    sparse: bool = False
    """Whether arrays normally lack the chunks that hold nothing but the fill value."""
    restorable_by: str | None = None
    """Name of a function of the leaves and of whether there is a structure file, which returns the oldest
    version of each package that restores them. None: that is not known."""
    holds_metadata: bool = True
    """Whether it has a place for custom metadata. Otherwise the plan says that it is left out."""
    flat: bool = False
    """Whether names have no levels, so that dots in them are the convention."""
    holds_shardings: bool = False
    """Whether it has a place for the shardings of arrays."""
    holds_empty: bool = True
    """Whether it has a place for None and empty containers. Otherwise plans say that they are left out."""
    holds_lists: bool = True
    """Whether it tells lists from dicts with the keys `0`, `1`, …"""

    @property
    def writable(self) -> bool:
        """Whether checkpoints of this format can be written."""
        return self.sink is not None
