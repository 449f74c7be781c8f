"""PyTorch's distributed checkpoints: a directory of `.metadata` and `__RANK_N.distcp`, read without torch."""

from ckpt_surgery.formats.dcp.detect import detect
from ckpt_surgery.formats.registry import Format

FORMAT = Format(
    name="dcp",
    detect=detect,
    source="ckpt_surgery.formats.dcp.source:open_dcp",
    other_files="ckpt_surgery.formats.dcp.other_files:other_files",
)
