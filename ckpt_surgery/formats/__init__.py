"""Checkpoint formats: which one a path holds, how to list and read it, how to write one.

A format is one module of this package that has a `FORMAT`. Other packages add theirs under the
entry point group `ckpt_surgery.formats`, whose entries name such a module or a `Format` itself.
Importing a format's module must stay cheap: heavy libraries are imported where they are used.
"""

import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpt_surgery.arrays import LinkMode, Sink, Source
from ckpt_surgery.errors import SourceError, UsageError, did_you_mean
from ckpt_surgery.keys import shown


@dataclass(frozen=True)
class Selection:
    """Which checkpoint of a directory that holds several."""

    step: int | None = None
    """None: the latest committed one."""
    item: str | None = None
    """None: the only one that holds arrays."""


@dataclass(frozen=True)
class SinkOptions:
    """How a checkpoint is to be written. A format ignores what it has no use for."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata; must be JSON."""
    step: int | None = None
    """Write into DIRECTORY/STEP/ITEM, a CheckpointManager's layout, instead of into DIRECTORY itself."""
    item: str | None = None
    """Name of the item. With a step the default is `default`; alone, DIRECTORY is the step's directory."""
    link_mode: LinkMode = LinkMode.AUTO
    """How files with stored bytes that are adopted come in."""
    zarr: int = 3
    """Version of the zarr specification: 2 or 3. Only version 3 stores checksums."""
    shard_size: int | None = None
    """Bytes of arrays per file at most, where a format spreads them over several. None: one file."""
    file_name: str | None = None
    """The checkpoint is to be this one file inside the directory; None: it is the directory.
    Never None where the format's `is_file` says so of the destination's name."""


@dataclass(frozen=True)
class Format:
    """What a module of this package offers."""

    name: str
    """What `--format` and the reports call it."""
    detect: Callable[[Path], bool]
    """Whether a path looks like this format, damaged ones included. Reads names and a few bytes."""
    open_source: Callable[[str, Selection], Source]
    """Raises SourceError where the checkpoint is not whole, UsageError for a step it cannot have."""
    open_sink: Callable[[Path, SinkOptions], Sink] | None = None
    """Opens a sink on an empty directory that exists. None: this format is only read."""
    suffixes: tuple[str, ...] = ()
    """A destination whose name ends so is written in this format if nobody says otherwise."""
    is_file: Callable[[str], bool] = lambda name: False
    """Whether a destination of that name is to be one file rather than a directory."""
    links: bool = False
    """Whether its checkpoints can refer to bytes inside the files of others; else those are copied."""


@functools.cache
def formats() -> Mapping[str, Format]:
    """Every known format by name: this package's, then those of entry points."""
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    offers: list[Any] = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    for entry in importlib.metadata.entry_points(group="ckpt_surgery.formats"):
        loaded = entry.load()
        offers.append(getattr(loaded, "FORMAT", loaded))
    return {offer.name: offer for offer in offers}


def _named(name: str) -> Format:
    known = formats()
    if name not in known:
        raise UsageError(
            f"There is no format `{name}`{did_you_mean(name, known)}", hint=f"Known: {', '.join(known)}."
        )
    return known[name]


def detect_format(path: str) -> Format:
    """The format of what lies at `path`, by content. Raises SourceError where none fits."""
    for candidate in formats().values():
        if candidate.detect(Path(path)):
            return candidate
    raise SourceError(
        f"{shown(path)} is not a checkpoint of a known format",
        hint=f"Formats that can be read: {', '.join(formats())}. Name one with --format if you are sure.",
    )


def open_source(
    path: str, format: str | None = None, step: int | None = None, item: str | None = None
) -> Source:
    """Open the checkpoint at `path` for listing and reading.

    Raises SourceError where it is missing, damaged or of no known format, and UsageError where
    `format` is unknown or `step` or `item` does not apply.
    """
    if not Path(path).exists():
        raise SourceError(f"{shown(path)} does not exist", hint="Check the path.")
    chosen = _named(format) if format else detect_format(path)
    return chosen.open_source(path, Selection(step, item))


def can_link(format: str) -> bool:
    """Whether checkpoints of a format can share the data files of others. Raises UsageError."""
    return _named(format).links


def open_sink(format: str, directory: Path, options: SinkOptions) -> Sink:
    """A sink that writes `format` into `directory`, which exists and is empty. Raises UsageError."""
    chosen = _named(format)
    if chosen.open_sink is None:
        writable = ", ".join(name for name, known in formats().items() if known.open_sink)
        raise UsageError(
            f"The format `{format}` can be read but not written", hint=f"Formats to write: {writable}."
        )
    return chosen.open_sink(directory, options)
