"""float8_e8m0fnu, the scales of MX formats: powers of two and NaN, without zero, sign or infinity.

All 256 bit patterns of a safetensors file become wider numbers and come back. Which formats hold the type is
a matter of their conformance suites.
"""

import json
import struct
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.support.command_line import run

BITS = np.arange(256, dtype=np.uint8).reshape(16, 16)


def save_safetensors(path: Path) -> None:
    header = {"w": {"dtype": "F8_E8M0", "shape": [16, 16], "data_offsets": [0, 256]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + BITS.tobytes())


def by_orbax(path: Path) -> np.ndarray:
    return np.asarray(ocp.PyTreeCheckpointer().restore(path)["w"])


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
