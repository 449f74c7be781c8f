"""TensorFlow's checkpoints: tensor bundles, of `tf.train.Checkpoint` and `tf.compat.v1.train.Saver`."""

from ckpt_surgery.formats import Format
from ckpt_surgery.formats.tensor_bundle_paths import detect
from ckpt_surgery.formats.tensor_bundle_source import open_tensor_bundle

FORMAT = Format(name="tensorflow", detect=detect, open_source=open_tensor_bundle)
