"""The zarr format: groups of arrays in a directory, versions 2 and 3 of the specification."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.shared.zarr.layout import SUFFIX, detect

FORMAT = Format(
    name="zarr",
    detect=detect,
    module=__name__,
    writable=True,
    suffixes=(SUFFIX,),
    stores=True,
    replaces_files=True,
    separate_files=True,
    sparse=True,
    holds_empty=False,
    holds_lists=False,
)
