"""Flax's MessagePack files: `flax.serialization`, `flax.training.checkpoints`, Hugging Face, EasyLM."""

from pathlib import Path

from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.formats.flax.detect import SUFFIX, detect
from ckpt_surgery.formats.registry import Format, Selection, SinkOptions


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.flax.source import open_flax

    return open_flax(path, selection)


def _open_sink(directory: Path, options: SinkOptions) -> Sink:
    from ckpt_surgery.formats.flax.sink import open_flax_sink

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
