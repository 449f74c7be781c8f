"""NumPy's `.npy`: a directory of such files, whose paths are the keys, or a single one. Only read."""

from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.npy.detect import detect
from ckpt_surgery.formats.registry import Format, Selection


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.npy.source import open_npy

    return open_npy(path, selection)


FORMAT = Format(
    name="npy",
    detect=detect,
    open_source=_open_source,
    suffixes=(".npy",),
    holds_empty=False,
    holds_lists=False,
)
