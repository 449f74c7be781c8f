"""Which files a PyTorch checkpoint is: one, or the shards of a Hugging Face model with their index.

Source of the conventions: torch 2.13; transformers and diffusers for several files.
"""

import os
import re
from collections.abc import Sequence

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.single_file import not_one, without_index
from ckpt_surgery.formats.shared.zip.layout import first_name
from ckpt_surgery.storage.listing import is_directory, is_file, names_in

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
INDEX_SUFFIX = ".bin.index.json"
DISTRIBUTED = ".distcp"
MODELS = ("pytorch_model", "diffusion_pytorch_model", "adapter_model")
"""Names of the files of models in directories, before `.bin`."""
_PART = re.compile(
    r"(data\.pkl|data/\d+|byteorder|constants\.pkl|\.format_version|\.data/serialization_id)\Z"
)
"""Names of the members of a file, below the prefix; any of them may come first."""
_SHARD = re.compile(rf"({'|'.join(MODELS)})-\d+-of-\d+\.bin\Z")


def detect(path: PathLike) -> bool:
    """Whether a path is a PyTorch zip file, an index of shards, or a model's directory; damaged ones too.

    The files of a distributed checkpoint, which consist of such zip files, are none.
    """
    place = os.fspath(path)
    if place.endswith(DISTRIBUTED):
        return False
    try:
        if is_directory(place):
            names = names_in(place)
            return bool(_whole_models(names)) or any(map(_SHARD.match, names))
    except SourceError:
        return False
    first = first_name(place)
    if first is None:
        return place.endswith(INDEX_SUFFIX) and is_file(place)
    _, _, part = first.partition("/")
    return bool(_PART.match(part)) or (
        os.path.splitext(place)[1] in SUFFIXES and not first.endswith(NPY_SUFFIX)
    )


def _whole_models(names: Sequence[str]) -> list[str]:
    """Those names in a directory that stand for all of a model: files, and indexes of shards."""
    usual = [f"{model}{end}" for model in MODELS for end in (".bin", INDEX_SUFFIX)]
    return [name for name in usual if name in names]


def chosen(directory: str) -> str:
    """The name of the file or index in a directory that stands for all of it. Raises SourceError."""
    names = names_in(directory)
    found = _whole_models(names)
    if len(found) == 1:
        return found[0]
    shards = [name for name in names if _SHARD.match(name)]
    if shards and not found:
        raise without_index(directory, shards, f"{MODELS[0]}{INDEX_SUFFIX}")
    others = "" if found else f" with a name such as {MODELS[0]}.bin"
    raise not_one(directory, f"PyTorch checkpoints{others}", found)
