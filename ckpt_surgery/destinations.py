"""Where a result goes: its format, the sink that writes it, and what a plan has to know about it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ckpt_surgery.core.protocols import LinkMode, Output, Sink
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.zarr_shards import wholly_stored
from ckpt_surgery.language.models import OutputPolicy
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.planner.transfers import Destination
from ckpt_surgery.requests import Request
from ckpt_surgery.storage.listing import data_file

DEFAULT_FORMAT = "orbax"


def resolved(request: Request, output: OutputPolicy | None) -> DestinationOptions:
    """The destination that is asked for; `output` is the recipe's part about it, if it has one.

    The format is the request's, or else the recipe's, or else the one that the destination is named for, or
    else Orbax. Raises UsageError where the destination is named for a format that cannot be written.
    """
    if request.dst is not None and request.format is None:
        formats.check_name(request.dst)
    policy = output or OutputPolicy()
    options = DestinationOptions(
        path=request.dst,
        format=request.format or policy.format or "",
        step=request.dst_step,
        item=request.dst_item,
        zarr=policy.zarr,
        structure_file=policy.structure_file,
        shard_size=request.shard_size,
        link_mode=request.link_mode or LinkMode.AUTO,
    )
    return replace(options, format=options.format or formats.format_for(options.name) or DEFAULT_FORMAT)


def destination(
    options: DestinationOptions, metadata: Mapping[str, Any], sources: Sequence[str]
) -> Destination:
    """What a plan has to know about a destination. Opens no sink.

    Without a path, it is assumed to be on the file system of the first of `sources`. Raises UsageError where
    the format cannot follow the options, or cannot be written at the path.
    """
    chosen, sink_options = formats.named(options.format), _sink_options(options, metadata)
    encoder = formats.encoder(options.format, sink_options)
    if options.path is not None:
        formats.check_destination(options.format, Path(options.path), sink_options)
    links = options.link_mode is not LinkMode.COPY and chosen.links
    return Destination(
        encoder=encoder,
        wholly_stored=wholly_stored,
        data_file=data_file,
        format=options.format,
        holds_empty=chosen.holds_empty,
        device=_device(options.path, sources) if links else None,
        restorable_by=partial(formats.restorable_by, options.format, structure_file=options.structure_file),
        flat=chosen.flat,
        holds_shardings=chosen.holds_shardings,
    )


def _device(path: str | None, sources: Sequence[str]) -> int | None:
    """Number of the file system that a destination will be on; None where no directory of it is known."""
    places = [] if path is None else [Path(path).absolute().parent]
    places += [place for source in sources for place in (Path(source).absolute(), Path(source).parent)]
    return next((os.stat(place).st_dev for place in places if place.exists()), None)


def open_sink(
    options: DestinationOptions,
    metadata: Mapping[str, Any],
    directory: Path,
    outputs: Sequence[Output],
    step_only: bool = False,
) -> Sink:
    """The sink that writes these outputs into a directory, which is published afterwards.

    `step_only`: the directory becomes one step of a CheckpointManager directory that exists.
    """
    sink_options = _sink_options(options, metadata)
    if step_only:
        sink_options = replace(sink_options, step=None, item=sink_options.item or "default")
    return formats.open_sink(options.format, directory, sink_options, outputs)


def _sink_options(options: DestinationOptions, metadata: Mapping[str, Any]) -> formats.SinkOptions:
    return formats.SinkOptions(
        metadata=metadata,
        step=options.step,
        item=options.item,
        link_mode=options.link_mode,
        zarr=options.zarr,
        structure_file=options.structure_file,
        shard_size=options.shard_size,
        file_name=options.name if is_file(options) else None,
    )


def is_file(options: DestinationOptions) -> bool:
    """Whether the result is one file rather than a directory."""
    return formats.named(options.format).is_file(options.name)


@dataclass(frozen=True)
class Publication:
    """What is published by one rename."""

    path: Path
    step_only: bool
    """Whether it is one step of a CheckpointManager directory that exists."""


def publication(path: str, step: int | None) -> Publication:
    """The destination itself, or the step's directory where there is a step and the destination exists."""
    dst = Path(path)
    step_only = step is not None and dst.is_dir()
    return Publication(dst / str(step) if step_only else dst, step_only)
