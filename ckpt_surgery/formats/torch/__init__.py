"""PyTorch, what `torch.save` writes since 1.6: zip files, read without torch and without running anything."""

from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.registry import Format, Selection
from ckpt_surgery.formats.torch.detect import detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.torch.source import open_torch

    return open_torch(path, selection)


FORMAT = Format(name="torch", detect=detect, open_source=_open_source, suffixes=(".pt", ".pth", ".bin"))
