"""The zarr format: groups of arrays in a directory, versions 2 and 3 of the specification."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.zarr_sink import open_zarr_sink
from ckpt_surgery.formats.zarr_source import SUFFIX, detect, open_zarr

FORMAT = Format(
    name="zarr",
    detect=detect,
    open_source=open_zarr,
    open_sink=open_zarr_sink,
    suffixes=(SUFFIX,),
)
