"""PyTorch, what `torch.save` writes since 1.6: zip files, read without torch and without running anything."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.torch.detect import NAMES

FORMAT = Format(name="torch", detect=NAMES.detect, module=__name__, suffixes=(".pt", ".pth", ".bin"))
