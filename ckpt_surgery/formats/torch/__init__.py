"""PyTorch, what `torch.save` writes since 1.6: zip files, read without torch and without running anything.

Source of the conventions: torch 2.13; transformers and diffusers for several files.
"""

import os
import re
from dataclasses import replace

from ckpt_surgery.formats.registry import Format, Listing, Names, Selection
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX
from ckpt_surgery.formats.shared.zip.members import first_name, read_archive
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.reading import OpenFile, opened

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
    """Whether a file is a zip archive with torch's members or suffix, but not a distributed checkpoint's."""
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


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them."""
    directory, name = NAMES.file_of(path)
    if not name.endswith(INDEX_SUFFIX):
        return _read_file(directory, name)
    from ckpt_surgery.formats.shared.config_files import read_sharded

    return read_sharded(directory, name, _read_file)


def _read_file(directory: str, name: str) -> Listing:
    """The leaves of a file, from the archive's directory and the pickle; runs nothing."""
    from ckpt_surgery.formats.shared.torch.tree import list_leaves, read_saved

    path = os.path.join(directory, name)
    with opened(path) as file:
        archive = read_archive(file)
        with with_path(path):
            saved, stem = read_saved(file, archive), os.path.splitext(name)[0]
            return replace(list_leaves(saved, path, stem), files={path: file.stat})
