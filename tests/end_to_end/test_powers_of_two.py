"""float8_e8m0fnu, the scales of MX formats: powers of two and NaN, without zero, sign or infinity.

All 256 bit patterns go from every format that holds it to every other, by copies and by computing, and are
read back by the formats' own libraries. A format that cannot hold it says so before anything is written.
"""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import flax.serialization
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
import torch
from safetensors.torch import load_file

from tests.support.command_line import run

BITS = np.arange(256, dtype=np.uint8).reshape(16, 16)
VALUES = BITS.view(ml_dtypes.float8_e8m0fnu)


def save_safetensors(path: Path) -> None:
    header = {"w": {"dtype": "F8_E8M0", "shape": [16, 16], "data_offsets": [0, 256]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + BITS.tobytes())


def save_torch(path: Path) -> None:
    torch.save({"w": torch.from_numpy(BITS.copy()).view(torch.float8_e8m0fnu)}, path)


def save_flax(path: Path) -> None:
    path.write_bytes(flax.serialization.msgpack_serialize({"w": VALUES}))


def save_orbax(ocdbt: bool, zarr3: bool) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
        ocp.Checkpointer(handler).save(path, {"w": VALUES})

    return save


def zarr_array(path: Path, driver: str) -> ts.TensorStore:
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/w/"}}
    return ts.open(spec, dtype=ts.dtype("float8_e8m0fnu"), shape=[16, 16], open=True, create=True).result()


def save_zarr(driver: str, name: str, text: str) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        zarr_array(path, driver).write(VALUES).result()
        (path / name).write_text(text)

    return save


ORIGINS: Mapping[str, Callable[[Path], None]] = {
    "a.safetensors": save_safetensors,
    "a.pt": save_torch,
    "a.msgpack": save_flax,
    "orbax-files": save_orbax(False, False),
    "orbax2": save_orbax(True, False),
    "orbax3": save_orbax(True, True),
    "zarr2": save_zarr("zarr", ".zgroup", '{"zarr_format": 2}'),
    "zarr3": save_zarr("zarr3", "zarr.json", '{"zarr_format": 3, "node_type": "group"}'),
}


def by_safetensors(path: Path) -> np.ndarray:
    """The library reads the type for torch alone."""
    return load_file(path)["w"].view(torch.uint8).numpy()


def by_flax(path: Path) -> np.ndarray:
    return flax.serialization.msgpack_restore(path.read_bytes())["w"]


def by_orbax(path: Path) -> np.ndarray:
    return np.asarray(ocp.PyTreeCheckpointer().restore(path)["w"])


def by_tensorstore(path: Path) -> np.ndarray:
    return np.asarray(zarr_array(path, "zarr3").read().result())


DESTINATIONS: Mapping[str, Callable[[Path], np.ndarray]] = {
    "b.safetensors": by_safetensors,
    "b.msgpack": by_flax,
    "b": by_orbax,
    "b.zarr": by_tensorstore,
}


@pytest.mark.filterwarnings("ignore:Sharding info not provided when restoring:UserWarning")
@pytest.mark.parametrize("name", ORIGINS)
def test_every_bit_arrives(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    ORIGINS[name](source)
    (tmp_path / "turn.yaml").write_text("version: 1\nrules: [{match: w, value: 'flip(x, 0)'}]\n")
    assert run("diff", source, source, "--values", "--exit-code").exit_code == 0
    for called, load in DESTINATIONS.items():
        done = run("convert", source, tmp_path / called)
        assert done.exit_code == 0, done.stderr
        np.testing.assert_array_equal(load(tmp_path / called).view(np.uint8), BITS)
        done = run("apply", tmp_path / "turn.yaml", source, tmp_path / f"c{called}")
        assert done.exit_code == 0, done.stderr
        np.testing.assert_array_equal(load(tmp_path / f"c{called}").view(np.uint8), BITS[::-1])
    refused = run("convert", source, tmp_path / "b.npz")
    assert (refused.exit_code, refused.stderr) == (
        2,
        "Error: `w` is float8_e8m0fnu, which NumPy cannot store; cast it to another type.\n",
    )
    assert not (tmp_path / "b.npz").exists()


@pytest.mark.filterwarnings("ignore:Sharding info not provided when restoring:UserWarning")
def test_casts_are_exact_or_refused(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "a.safetensors")
    there, back, wrong = (tmp_path / f"{name}.yaml" for name in ("there", "back", "wrong"))
    there.write_text("version: 1\nrules: [{match: w, value: 'cast(x, \"float64\")'}]\n")
    back.write_text("version: 1\nrules: [{match: w, value: 'cast(x, \"float8_e8m0fnu\")'}]\n")
    wrong.write_text("version: 1\nrules: [{match: w, value: 'cast(x * -1, \"float8_e8m0fnu\")'}]\n")
    assert run("apply", there, tmp_path / "a.safetensors", tmp_path / "wide").exit_code == 0
    wide = by_orbax(tmp_path / "wide")
    np.testing.assert_array_equal(wide.reshape(-1)[:255], 2.0 ** np.arange(-127, 128))
    assert np.isnan(wide[15, 15])
    done = run("apply", back, tmp_path / "wide", tmp_path / "narrow")
    assert done.exit_code == 0, done.stderr
    np.testing.assert_array_equal(by_orbax(tmp_path / "narrow").view(np.uint8), BITS)
    done = run("apply", wrong, tmp_path / "wide", tmp_path / "none")
    assert done.exit_code == 1
    assert "`w`: " in done.stderr
    assert not (tmp_path / "none").exists()
