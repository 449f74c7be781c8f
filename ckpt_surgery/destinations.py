"""Where a result goes: the sink that writes it, and what the plan has to know of it before."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ckpt_surgery.core.protocols import LinkMode, Sink
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.zarr_shards import wholly_stored
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.planner.transfers import Destination
from ckpt_surgery.storage.listing import data_file


def destination(
    options: DestinationOptions, metadata: Mapping[str, Any], sources: Sequence[str]
) -> Destination:
    """What the plan has to know; without a DST the result is taken to go beside the first of `sources`."""
    # Nothing is written yet, and without a DST the sink cannot know where.
    sink = open_sink(options, metadata, Path(options.path or os.sep))
    places = [Path(options.path).absolute().parent] if options.path else []
    places += [place for path in sources for place in (Path(path).absolute(), Path(path).parent)]
    device = next((os.stat(place).st_dev for place in places if place.exists()), None)
    links = options.link_mode is not LinkMode.COPY and formats.can_link(options.format)
    return Destination(
        unsupported=sink.unsupported,
        adopts=sink.adopts,
        wholly_stored=wholly_stored,
        data_file=data_file,
        format=options.format,
        holds_empty=formats.holds_empty(options.format),
        device=device if links else None,
        restorable_by=partial(formats.restorable_by, options.format, structure_file=options.structure_file),
        flat=formats.is_flat(options.format),
        holds_shardings=formats.holds_shardings(options.format),
    )


def open_sink(
    options: DestinationOptions, metadata: Mapping[str, Any], directory: Path, step_only: bool = False
) -> Sink:
    """`step_only`: the directory is to become one step of a CheckpointManager directory that exists."""
    sink_options = formats.SinkOptions(
        metadata=metadata,
        step=None if step_only else options.step,
        item=options.item or "default" if step_only else options.item,
        link_mode=options.link_mode,
        zarr=options.zarr,
        structure_file=options.structure_file,
        shard_size=options.shard_size,
        file_name=options.name if is_file(options) else None,
    )
    return formats.open_sink(options.format, directory, sink_options)


def is_file(options: DestinationOptions) -> bool:
    """Whether the result is one file rather than a directory."""
    return formats.is_file(options.format, options.name)


def published_unit(path: str, step: int | None) -> Path:
    """What one rename publishes: DST, or with a step the step's directory where DST is there already."""
    dst = Path(path)
    return dst / str(step) if step is not None and dst.is_dir() else dst
