"""`open`: a checkpoint as a mapping of arrays that are read when they are asked for."""

from typing import Literal

from ckpt_surgery.core.arguments import CheckpointLike, one_of
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.inputs.checkpoints import Checkpoint, open_checkpoint
from ckpt_surgery.inputs.request import UINT16, checkpoint_or_tree
from ckpt_surgery.storage.views import forget


@memory_errors("open the checkpoint")
def open(
    path: CheckpointLike,
    *,
    step: int | None = None,
    item: str | None = None,
    format: str | None = None,
    uint16: Literal["keep", "bfloat16"] = "keep",
) -> Checkpoint:
    """Open a checkpoint as a mapping from keys to lazy arrays, texts and empty nodes. Reads no array.

    `step` and `item` choose from a checkpoint that holds several (default: the latest step, the only item
    with arrays); `format` is the format to read (default: detected from its content). `uint16="bfloat16"`
    takes the bits of arrays of uint16 as bfloat16, which old versions of T5X stored so. A pytree in memory
    can be opened, too.

    No file stays open between two reads. Raises SourceError or UsageError.
    """
    forget()
    return open_checkpoint(checkpoint_or_tree(path), step, item, format, one_of("uint16", uint16, UINT16))
