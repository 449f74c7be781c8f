"""Formats that names of destinations imply, and names that promise another program's files."""

import os
from collections.abc import Mapping

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.known import formats, formats_to_write, writable

_FOREIGN = {
    "a Caffe model": ".caffemodel",
    "a checkpoint of PyTorch Lightning or TensorFlow": ".ckpt",
    "a part of a distributed checkpoint of PyTorch": ".distcp",
    "a TensorRT engine": ".engine .trt",
    "a GGML file": ".ggml",
    "an archive of TorchServe": ".mar",
    "a Core ML model": ".mlmodel .mlpackage",
    "a NeMo archive": ".nemo",
    "an ONNX model": ".onnx",
    "a model of ONNX Runtime": ".ort",
    "a file of MXNet": ".params",
    "a TensorFlow graph": ".pb",
    "a PaddlePaddle file": ".pdparams",
    "an exported PyTorch program": ".pt2",
    "an ExecuTorch program": ".pte",
    "a TensorFlow Lite model": ".tflite",
    "a pickle": ".dill .joblib .pickle .pkl",
    "a 7z archive": ".7z",
    "a bzip2 archive": ".bz2",
    "a gzip archive": ".gz .tgz",
    "a tar archive": ".tar",
    "an xz archive": ".xz",
    "a zip archive": ".zip",
    "a zstd archive": ".zst",
    "a JSON document": ".json",
    "a recipe": ".yaml .yml",
}
FOREIGN: Mapping[str, str] = {suffix: what for what, ends in _FOREIGN.items() for suffix in ends.split()}
"""Kinds of other programs' files by suffix. The formats list the suffixes of files that are read here."""


def format_for(name: str) -> str | None:
    """The format with the longest suffix that a name ends with; None: there is none.

    It may be a format that is only read.
    """
    suffixes = {suffix.lower(): known.name for known in formats().values() for suffix in known.suffixes}
    return _by_suffix(name, suffixes)


def promised(name: str) -> str | None:
    """Format, or other program's kind of file, that a name implies; None if it implies neither."""
    return format_for(name) or _by_suffix(name, FOREIGN)


def _by_suffix(name: str, suffixes: Mapping[str, str]) -> str | None:
    matching = [suffix for suffix in suffixes if name.lower().endswith(suffix)]
    return suffixes[max(matching, key=len)] if matching else None


def check_name(path: str) -> None:
    """Refuse a destination that is named like something that cannot be written here.

    Called if no format is given. Raises UsageError.
    """
    name = os.path.basename(urls.absolute(path))
    format = format_for(name)
    if format in writable() or (what := promised(name)) is None:
        return
    raise UsageError(
        f"{shown(path)}: its name says {what}, which cannot be written",
        hint=f"{formats_to_write()} Name the destination for one of them, or say which: `format=NAME`.",
    )
