"""TensorFlow's checkpoints: tensor bundles, of `tf.train.Checkpoint` and `tf.compat.v1.train.Saver`."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.tensorflow.detect import detect

FORMAT = Format(
    name="tensorflow",
    detect=detect,
    module=__name__,
    choices=("step",),
    holds_empty=False,
    holds_lists=False,
)
