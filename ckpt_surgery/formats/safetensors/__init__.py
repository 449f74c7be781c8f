"""The safetensors format: one file, or shards with an index, as Hugging Face models come."""

from pathlib import Path

from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.formats.registry import Format, Selection, SinkOptions
from ckpt_surgery.formats.safetensors.detect import SUFFIX, detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.safetensors.source import open_safetensors

    return open_safetensors(path, selection)


def _open_sink(directory: Path, options: SinkOptions) -> Sink:
    from ckpt_surgery.formats.safetensors.sink import open_safetensors_sink

    return open_safetensors_sink(directory, options)


FORMAT = Format(
    name="safetensors",
    detect=detect,
    open_source=_open_source,
    open_sink=_open_sink,
    suffixes=(SUFFIX,),
    flat=True,
    is_file=lambda name: name.lower().endswith(SUFFIX),
    shards=True,
    metadata_entries={"format": "pt"},  # which transformers before version 5 look for
    holds_empty=False,
    holds_lists=False,
)
