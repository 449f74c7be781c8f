"""Where a result goes: its format, and what a plan has to know about it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.protocols import DataFile, Linkable, LinkMode, ModelSource, Source
from ckpt_surgery.formats import destination_names
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.zarr_shards import wholly_stored
from ckpt_surgery.inputs.opening import on_disk
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.language.models import OutputPolicy
from ckpt_surgery.planner.options import (
    DEFAULT_FORMAT,
    DestinationOptions,
    ResultForm,
)
from ckpt_surgery.planner.transfers import Destination
from ckpt_surgery.storage.linking import ReplacedFiles, linkable_into
from ckpt_surgery.storage.listing import data_file, real_path
from ckpt_surgery.storage.listing import is_file as is_file_at
from ckpt_surgery.storage.stores import store_of


def resolved(request: Request, output: OutputPolicy | None) -> DestinationOptions:
    """The destination that is asked for; `output` is the recipe's part about it, if it has one.

    The format is the request's, or else the recipe's, or else the one that the destination is named for, or
    else Orbax. Raises UsageError where the destination is named for a format that cannot be written.
    """
    if request.dst is not None and request.format is None:
        destination_names.check_name(request.dst)
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
    said = destination_names.format_for(options.name)
    return replace(options, format=options.format or said or DEFAULT_FORMAT)


def destination(
    options: DestinationOptions, metadata: Mapping[str, Any], sources: Sequence[Source]
) -> Destination:
    """What a plan has to know about a destination. Opens no sink.

    Without a path, it is assumed to be on the file system of the first of `sources`. Raises UsageError where
    the format cannot follow the options, or cannot be written at the path.
    """
    chosen, given = formats.named(options.format), sink_options(options, metadata, sources)
    encoder = formats.encoder(options.format, given)
    if options.path is not None:
        place = options.path if urls.is_url(options.path) else Path(options.path)
        formats.check_destination(options.format, place, given)
    spooled = not chosen.stores and options.path is not None and urls.is_url(options.path)
    links = options.link_mode is not LinkMode.COPY and chosen.links and not spooled
    linkable = _linkable(options, sources, given.replaced) if links else None
    return Destination(
        encoder=encoder,
        wholly_stored=wholly_stored,
        data_file=data_file,
        format=options.format,
        holds_empty=chosen.holds_empty,
        linkable=linkable,
        served=options.path is not None and urls.is_url(options.path),
        restorable_by=partial(formats.restorable_by, options.format, structure_file=options.structure_file),
        flat=chosen.flat,
        holds_shardings=chosen.holds_shardings,
    )


def sink_options(
    options: DestinationOptions, metadata: Mapping[str, Any], sources: Sequence[Source]
) -> formats.SinkOptions:
    return formats.SinkOptions(
        metadata=metadata,
        step=options.step,
        item=options.item,
        link_mode=options.link_mode,
        replaced=_replaced_files(sources),
        zarr=options.zarr,
        structure_file=options.structure_file,
        shard_size=options.shard_size,
        file_name=options.name if form_of(options).one_file else None,
        model_files=partial(_model_files, sources),
    )


def _model_files(sources: Sequence[Source]) -> Mapping[str, bytes]:
    """The files of the first model that the sources hold. Raises SourceError or UsageError."""
    found = (source.model_files() for source in sources if isinstance(source, ModelSource))
    return next((files for files in found if files), {})


def form_of(options: DestinationOptions) -> ResultForm:
    """What the format makes of a destination."""
    chosen = formats.named(options.format)
    one_file = chosen.is_file(options.name)
    holds_config = chosen.holds_config and not one_file
    return ResultForm(one_file, chosen.stores, chosen.sparse, holds_config, chosen.reserves_record)


# --- what can be linked -------------------------------------------------------------------------------------


def _linkable(
    options: DestinationOptions, sources: Sequence[Source], replaced: ReplacedFiles
) -> Callable[[DataFile], Linkable] | None:
    """Which whole files can be taken over; None: none."""
    if options.path is not None and urls.is_url(options.path):
        store = store_of(options.path)[0]
        return lambda file: Linkable.YES if store.copies(file.path, file.size) else Linkable.NO
    parent = _parent(options.path, sources)
    return None if parent is None else linkable_into(parent, options.link_mode, replaced)


def _parent(path: str | None, sources: Sequence[Source]) -> Path | None:
    """The directory that a destination will be in, as far as it is known; None where there is none."""
    places = [] if path is None else [Path(path).absolute().parent]
    for source in on_disk(sources):
        if urls.is_url(source.path):
            continue
        own = Path(source.path).absolute()
        places += [own if own.is_dir() else own.parent]
    return next((place for place in places if place.exists()), None)


def _replaced_files(sources: Sequence[Source]) -> ReplacedFiles:
    """The files of the sources that their writers replace and never rewrite."""
    found = {}
    for source in on_disk(sources):
        replaces, path = formats.named(source.format).replaces_files, real_path(source.path)
        # The arrays of a T5X checkpoint that is given as its file lie beside it.
        found[os.path.dirname(path) if replaces and is_file_at(path) else path] = replaces
    return ReplacedFiles(found)
