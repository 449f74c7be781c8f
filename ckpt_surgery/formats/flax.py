"""Flax's MessagePack files: `flax.serialization`, `flax.training.checkpoints`, Hugging Face, EasyLM."""

from pathlib import Path

from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.formats import Format, Selection, SinkOptions
from ckpt_surgery.formats.flax_layout import SUFFIX, detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.flax_source import open_flax

    return open_flax(path, selection)


def _open_sink(directory: Path, options: SinkOptions) -> Sink:
    from ckpt_surgery.formats.flax_sink import open_flax_sink

    return open_flax_sink(directory, options)


FORMAT = Format(
    name="flax",
    detect=detect,
    open_source=_open_source,
    open_sink=_open_sink,
    suffixes=(SUFFIX,),
    is_file=lambda name: True,
    holds_metadata=False,
    holds_lists=False,
)
