"""Checkpoints in Google Cloud Storage as TensorStore itself reads them there."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import ckpt_surgery
from tests.emulators.fixtures import Bucket
from tests.support.checkpoints import save_pytree

ARRAYS = {"layer": {"w": np.arange(5000, dtype=np.float32).reshape(50, 100)}, "ids": np.arange(9)}
READ = """
import json, sys
import tensorstore as ts

url, name, driver = sys.argv[1:]
spec = {"driver": driver, "kvstore": {"driver": "ocdbt", "base": url, "path": name}}
array = ts.open(spec).result().read().result()
print(json.dumps([str(array.dtype), array.tolist()]))
"""


def read_by_tensorstore(url: str, name: str) -> np.ndarray:
    """An array of an OCDBT database. In a process of its own: the driver reads its variables once."""
    done = subprocess.run(
        [sys.executable, "-c", READ, url, name, "zarr3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    dtype, values = json.loads(done.stdout)
    return np.array(values, dtype)


def test_tensorstore_reads_what_was_written(tmp_path: Path, gcs_bucket: Bucket) -> None:
    save_pytree(tmp_path / "in", ARRAYS)
    recipe = {"version": 1, "rules": [{"match": "layer/(.*)", "to": r"params/\1", "value": "x * 2"}]}
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=f"{gcs_bucket.url}/out")
    found = read_by_tensorstore(f"{gcs_bucket.url}/out/", "params.w/")
    np.testing.assert_array_equal(found, np.asarray(ARRAYS["layer"]["w"]) * 2)  # type: ignore[call-overload]
