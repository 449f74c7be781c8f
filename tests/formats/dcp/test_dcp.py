"""PyTorch's distributed checkpoints, against torch; and directories that want more than tensors."""

import warnings
from pathlib import Path
from typing import Any

from tests.formats.dcp.lies import LIES
from tests.formats.torch.test_torch import DTYPES, nested
from tests.support import conformance
from tests.support.conformance import Arrays


def saved(state: dict[str, Any], path: Path, **options: Any) -> Path:
    """A checkpoint that this process writes alone."""
    import torch.distributed.checkpoint as dcp

    writer = dcp.FileSystemWriter(path, sync_files=False, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.save(state, storage_writer=writer, no_dist=True)
    return path


class TestDcp(conformance.Reading):
    format = "dcp"
    dtypes = DTYPES
    names = tuple(name for name in conformance.NAMES if name not in ("..", "a", "model.layers.0.weight"))
    """A name cannot be a tensor's and a dictionary's at once; torch joins names by dots."""
    lies = LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        return saved(nested(arrays), path)
