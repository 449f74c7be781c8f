"""NumPy's `.npz`: one zip archive of `.npy` files, as `np.savez` and `np.savez_compressed` write it."""

from pathlib import Path

from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.formats.npz.detect import SUFFIX, detect
from ckpt_surgery.formats.registry import Format, Selection, SinkOptions
from ckpt_surgery.formats.shared.zip_layout import MOST_COMMENT_BYTES


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.npz.source import open_npz

    return open_npz(path, selection)


def _open_sink(directory: Path, options: SinkOptions) -> Sink:
    from ckpt_surgery.formats.npz.sink import open_npz_sink

    return open_npz_sink(directory, options)


FORMAT = Format(
    name="npz",
    detect=detect,
    open_source=_open_source,
    open_sink=_open_sink,
    suffixes=(SUFFIX,),
    flat=True,
    is_file=lambda name: True,
    metadata_bytes=MOST_COMMENT_BYTES,
    holds_empty=False,
    holds_lists=False,
)
