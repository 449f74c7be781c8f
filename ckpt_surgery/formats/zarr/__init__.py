"""The zarr format: groups of arrays in a directory, versions 2 and 3 of the specification."""

from pathlib import Path

from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.formats.registry import Format, Selection, SinkOptions
from ckpt_surgery.formats.shared.zarr_layout import SUFFIX, detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.zarr.source import open_zarr

    return open_zarr(path, selection)


def _open_sink(directory: Path, options: SinkOptions) -> Sink:
    from ckpt_surgery.formats.zarr.sink import open_zarr_sink

    return open_zarr_sink(directory, options)


FORMAT = Format(
    name="zarr",
    detect=detect,
    open_source=_open_source,
    open_sink=_open_sink,
    suffixes=(SUFFIX,),
    sparse=True,
    holds_empty=False,
    holds_lists=False,
)
