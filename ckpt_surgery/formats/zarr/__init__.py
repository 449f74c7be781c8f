"""The zarr format: groups of arrays in a directory, versions 2 and 3 of the specification."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.shared.zarr.layout import SUFFIX, detect

FORMAT = Format(
    name="zarr",
    detect=detect,
    source="ckpt_surgery.formats.zarr.source:open_zarr",
    encoder="ckpt_surgery.formats.zarr.encoder:zarr_encoder",
    sink="ckpt_surgery.formats.zarr.sink:open_zarr_sink",
    separate_files=True,
    stores=True,
    check="ckpt_surgery.formats.zarr.encoder:check_destination",
    other_files="ckpt_surgery.formats.zarr.other_files:other_files",
    suffixes=(SUFFIX,),
    replaces_files=True,
    sparse=True,
    holds_empty=False,
    holds_lists=False,
)
