"""PyTorch, what `torch.save` writes since 1.6: zip files, read without torch and without running anything.

Source of the conventions: torch 2.13; transformers and diffusers for several files.
"""

import os
import re

from ckpt_surgery.formats.registry import Format, Names
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX
from ckpt_surgery.formats.shared.zip.members import first_name
from ckpt_surgery.storage.reading import OpenFile

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
INDEX_SUFFIX = ".bin.index.json"
DISTRIBUTED = ".distcp"
MODELS = ("pytorch_model", "diffusion_pytorch_model", "adapter_model")
"""Names of the files of models in directories, before `.bin`."""
_PART = re.compile(
    r"(data\.pkl|data/\d+|byteorder|constants\.pkl|\.format_version|\.data/serialization_id)\Z"
)
"""Names of the members of a file, below the prefix; any of them may come first."""
_SHARD = re.compile(rf"\A(?:{'|'.join(MODELS)})-(\d+)-of-(\d+)\.bin\Z")


def _begins(file: OpenFile) -> bool:
    """Whether a file is a zip archive with PyTorch's members, or with its suffix; damaged ones too.

    The files of a distributed checkpoint, which consist of such archives, are none.
    """
    first = first_name(file)
    if first is None or file.path.endswith(DISTRIBUTED):
        return False
    _, _, part = first.partition("/")
    if _PART.match(part):
        return True
    return os.path.splitext(file.path)[1] in SUFFIXES and not first.endswith(NPY_SUFFIX)


NAMES = Names(
    "PyTorch checkpoints",
    _begins,
    index=INDEX_SUFFIX,
    usual=tuple(f"{model}{end}" for model in MODELS for end in (".bin", INDEX_SUFFIX)),
    shard=_SHARD,
)

FORMAT = Format(name="torch", detect=NAMES.detect, module=__name__, suffixes=(".pt", ".pth", ".bin"))
