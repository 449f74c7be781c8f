"""Reading PyTorch's zip files, `.pt`, `.pth`, `.bin`, `.ckpt`: one, or the shards of a Hugging Face model.

What one file holds is in `shared.torch`. The conventions for several files are those of transformers and
diffusers.
"""

import os
from dataclasses import replace

from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.hf_index import read_sharded
from ckpt_surgery.formats.shared.torch.tree import list_leaves, read_saved
from ckpt_surgery.formats.shared.zip.members import read_archive
from ckpt_surgery.formats.torch import INDEX_SUFFIX, NAMES
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.reading import opened


def read_file(directory: str, name: str) -> Listing:
    """The leaves of a file, from the archive's directory and the pickle; runs nothing."""
    path = os.path.join(directory, name)
    with opened(path) as file:
        archive = read_archive(file)
        with with_path(path):
            saved, stem = read_saved(file, archive), os.path.splitext(name)[0]
            return replace(list_leaves(saved, path, stem), files={path: file.stat})


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them."""
    directory, name = NAMES.file_of(path)
    if not name.endswith(INDEX_SUFFIX):
        return read_file(directory, name)
    return read_sharded(directory, name, read_file)
