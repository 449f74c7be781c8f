"""What there is to choose from."""

from ckpt_surgery.formats.known import formats
from ckpt_surgery.inputs import choices


def test_formats() -> None:
    readable, writable = choices.readable_formats(), choices.writable_formats()
    assert readable == list(formats())
    assert set(readable) - set(writable) == {"dcp", "gguf", "npy", "t5x", "tensorflow", "torch"}
