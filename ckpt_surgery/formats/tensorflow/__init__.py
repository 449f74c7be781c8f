"""TensorFlow's checkpoints: tensor bundles, of `tf.train.Checkpoint` and `tf.compat.v1.train.Saver`."""

from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.registry import Format, Selection
from ckpt_surgery.formats.tensorflow.detect import detect


def _open_source(path: str, selection: Selection) -> Source:
    from ckpt_surgery.formats.tensorflow.source import open_tensor_bundle

    return open_tensor_bundle(path, selection)


FORMAT = Format(
    name="tensorflow", detect=detect, open_source=_open_source, holds_empty=False, holds_lists=False
)
