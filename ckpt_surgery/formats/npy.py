"""NumPy's `.npy`: a directory of such files, whose paths are the keys, or a single one. Only read."""

from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats import Format, Selection
from ckpt_surgery.formats.npy_layout import detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.npy_source import open_npy

    return open_npy(path, selection)


FORMAT = Format(
    name="npy",
    detect=detect,
    open_source=_open_source,
    suffixes=(".npy",),
    holds_empty=False,
    holds_lists=False,
)
