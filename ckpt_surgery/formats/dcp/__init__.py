"""PyTorch's distributed checkpoints: a directory of `.metadata` and `__RANK_N.distcp`, read without torch."""

from ckpt_surgery.formats.dcp.detect import detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(name="dcp", detect=detect, module=__name__)
