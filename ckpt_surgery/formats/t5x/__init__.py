"""T5X checkpoints, and Orbax's from before it wrote `_METADATA`: MessagePack, and zarr arrays beside it."""

from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.registry import Format, Selection
from ckpt_surgery.formats.t5x.detect import detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.t5x.source import open_t5x

    return open_t5x(path, selection)


FORMAT = Format(name="t5x", detect=detect, open_source=_open_source, holds_lists=False)
