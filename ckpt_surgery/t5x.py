"""T5X's ways of changing checkpoints, without T5X: translators, and the axes of a model's variables.

`from_t5x_translator`, `from_t5x_assignment_map` and `LogicalAxes` are in `ckpt_surgery` itself.
"""

from ckpt_surgery.live.logical_axes import split_axes
from ckpt_surgery.migration.t5x import CheckpointTranslator

__all__ = ["CheckpointTranslator", "split_axes"]
