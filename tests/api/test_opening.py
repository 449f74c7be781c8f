"""`open`: what it takes, and what it refuses before it looks at any file."""

from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import SourceError, UsageError
from tests.emulators.fixtures import Bucket


def test_what_cannot_be_opened_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        ckpt_surgery.open(model.with_name("mode.safetensors"))
    with pytest.raises(UsageError, match="`uint16`"):
        ckpt_surgery.open(model, uint16="bf16")  # type: ignore[arg-type]


def test_an_open_checkpoint_can_be_opened_again(model: Path) -> None:
    opened = ckpt_surgery.open(model)
    again = ckpt_surgery.open(opened)
    opened.close()
    assert again.path == str(model)
    np.testing.assert_array_equal(again["a/bias"].get(), [0, 1, 2, 3])


@pytest.mark.slow("talks to a server for each service")
def test_a_checkpoint_in_a_bucket(tmp_path: Path, bucket_of: Bucket) -> None:
    for name, array in {"a": np.arange(6.0).reshape(3, 2), "b": np.ones(2)}.items():
        ckpt_surgery.apply({"version": 1}, {name: array}, dst=f"{bucket_of.url}/{name}.zarr")
    opened = ckpt_surgery.open(f"{bucket_of.url}/a.zarr")
    np.testing.assert_array_equal(opened["a"][1:, ::-1], np.arange(6.0).reshape(3, 2)[1:, ::-1], strict=True)
    ckpt_surgery.inspect(f"{bucket_of.url}/b.zarr")  # which forgets what was listed
    np.testing.assert_array_equal(opened["a"][0], [0, 1])
    ckpt_surgery.apply({"version": 1}, {"a": np.zeros((3, 2))}, dst=f"{bucket_of.url}/a.zarr", overwrite=True)
    with pytest.raises(SourceError):
        opened["a"].get()
    with pytest.raises(SourceError, match="changed since it was opened"):
        ckpt_surgery.plan(None, opened, dst=tmp_path / "c")
