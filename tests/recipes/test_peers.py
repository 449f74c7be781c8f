"""What MaxText's and tunix's own converters make of a model is what the recipes make of it, bit for bit.

Their results are stored: `peers/` has the scripts that made them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ckpt_surgery import convert
from tests.recipes.peers.models import CASES, F32, Case, save
from tests.support.comparing import assert_same
from tests.support.slow import slow

PEERS = Path(__file__).parents[1] / "data" / "peers"
OF_TUNIX = [case for case in CASES if case.tunix]


@pytest.fixture(scope="module")
def of_maxtext() -> dict[str, np.ndarray]:
    return load_file(PEERS / "maxtext.safetensors")


@pytest.fixture(scope="module")
def of_tunix() -> dict[str, np.ndarray]:
    return load_file(PEERS / "tunix.safetensors")


def ours(case: Case, layout: str, tmp_path: Path) -> dict[str, np.ndarray]:
    """What `convert --to` makes, from files with a config beside them."""
    save(case, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "out.safetensors", to=layout, set={"scan": case.scan})
    return load_file(tmp_path / "out.safetensors")


@pytest.mark.parametrize(
    "case",
    [case if case.dtype == F32 else slow(case) for case in CASES],
    ids=lambda case: case.name,
)
def test_maxtext(case: Case, of_maxtext: dict[str, np.ndarray], tmp_path: Path) -> None:
    prefix = f"{case.name}/"
    theirs = {
        f"params/{key.removeprefix(prefix)}": array.astype(case.dtype)
        for key, array in of_maxtext.items()
        if key.startswith(prefix)
    }
    assert_same(ours(case, "maxtext", tmp_path), theirs)


@pytest.mark.parametrize("case", OF_TUNIX, ids=lambda case: case.name)
def test_tunix(case: Case, of_tunix: dict[str, np.ndarray], tmp_path: Path) -> None:
    prefix = f"{case.name}/"
    theirs = {key.removeprefix(prefix): a for key, a in of_tunix.items() if key.startswith(prefix)}
    assert_same(ours(case, "tunix", tmp_path), theirs)


def test_both_loaded_all_of_ours() -> None:
    """And their models have the logits of transformers, but for MaxText's Gemma 2, which differs a little."""
    maxtext, tunix = (json.loads((PEERS / f"{name}.json").read_text()) for name in ("maxtext", "tunix"))
    assert maxtext.pop("versions")["maxtext"] == "0.2.5"
    assert tunix.pop("versions")["google-tunix"] == "0.1.7"
    assert sorted(maxtext) == sorted(case.name for case in CASES)
    assert sorted(tunix) == sorted(case.name for case in OF_TUNIX)
    for told in (maxtext, tunix):
        for name, found in told.items():
            assert found["leaves"] == found["same"] == found.get("loaded", found.get("restored")), name
            limit = 2e-3 if told is maxtext and name == "gemma2" else 5e-6
            assert found.get("logits", 0.0) < limit, name
