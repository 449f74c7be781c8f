"""Names of files that other programs write, which a checkpoint should not have by accident."""

from collections.abc import Mapping

FOREIGN: Mapping[str, str] = {
    # models
    ".caffemodel": "a Caffe model",
    ".ckpt": "a checkpoint of PyTorch Lightning or TensorFlow",
    ".distcp": "a part of a distributed checkpoint of PyTorch",
    ".engine": "a TensorRT engine",
    ".ggml": "a GGML file",
    ".mar": "an archive of TorchServe",
    ".mlmodel": "a Core ML model",
    ".mlpackage": "a Core ML model",
    ".nemo": "a NeMo archive",
    ".onnx": "an ONNX model",
    ".ort": "a model of ONNX Runtime",
    ".params": "a file of MXNet",
    ".pb": "a TensorFlow graph",
    ".pdparams": "a PaddlePaddle file",
    ".pt2": "an exported PyTorch program",
    ".pte": "an ExecuTorch program",
    ".tflite": "a TensorFlow Lite model",
    ".trt": "a TensorRT engine",
    # arrays and objects
    ".dill": "a pickle",
    ".joblib": "a pickle",
    ".pickle": "a pickle",
    ".pkl": "a pickle",
    # archives
    ".7z": "a 7z archive",
    ".bz2": "a bzip2 archive",
    ".gz": "a gzip archive",
    ".tar": "a tar archive",
    ".tgz": "a gzip archive",
    ".xz": "an xz archive",
    ".zip": "a zip archive",
    ".zst": "a zstd archive",
    # other files that are named on a command line
    ".json": "a JSON document",
    ".yaml": "a recipe",
    ".yml": "a recipe",
}
"""Kinds of files by suffix. The suffixes of formats that this package reads are listed with the formats."""


def foreign(name: str) -> str | None:
    """The kind of a file of that name, in upper or lower case; None where the name says nothing."""
    matching = [suffix for suffix in FOREIGN if name.lower().endswith(suffix)]
    return FOREIGN[max(matching, key=len)] if matching else None
