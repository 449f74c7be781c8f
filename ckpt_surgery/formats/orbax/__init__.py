"""The Orbax format: v0 and v1 checkpoints, CheckpointManager directories, OCDBT or plain zarr."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.formats.orbax.detect import detect
from ckpt_surgery.formats.registry import Format, Selection, SinkOptions


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.orbax.source import open_orbax

    return open_orbax(path, selection)


def _open_sink(directory: Path, options: SinkOptions) -> Sink:
    from ckpt_surgery.formats.orbax.sink import open_orbax_sink

    return open_orbax_sink(directory, options)


def _restorable_by(leaves: Iterable[Leaf], structure_file: bool) -> Mapping[str, str]:
    from ckpt_surgery.formats.orbax.versions import restorable_by

    return restorable_by(leaves, structure_file)


FORMAT = Format(
    name="orbax",
    detect=detect,
    open_source=_open_source,
    open_sink=_open_sink,
    links=True,
    holds_shardings=True,
    structure_file=True,
    restorable_by=_restorable_by,
)
