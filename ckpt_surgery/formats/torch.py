"""PyTorch, what `torch.save` writes since 1.6: zip files, read without torch and without running anything."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.torch_source import detect, open_torch

FORMAT = Format(name="torch", detect=detect, open_source=open_torch)
