"""What KerasHub's own converter makes of a Mixtral is what the recipe makes of it, bit for bit.

Its results are stored: `peers/with_kerashub.py` made them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ckpt_surgery import convert
from tests.recipes.peers.kerashub_names import LAYER, kerashub_names
from tests.recipes.peers.models import OF_KERASHUB, save
from tests.support.comparing import assert_same

PEERS = Path(__file__).parents[1] / "data" / "peers"
LAYERS = OF_KERASHUB.decoder.layers


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(PEERS / "kerashub-mixtral.npz") as file:
        return {key: file[key] for key in file.files}


@pytest.fixture
def theirs(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The variables of KerasHub's backbone under the keys of ours."""
    assert sum(key.startswith("weights/") for key in stored) == 3 + LAYERS * len(LAYER)
    return {ours: stored[f"weights/{path}"] for ours, path in kerashub_names(LAYERS).items()}


def stacked(tree: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with the layers in one leaf each."""
    outside = {key: array for key, array in tree.items() if "/layers_" not in key}
    return outside | {
        f"params/decoder/layers/{name}": np.stack(
            [tree[f"params/decoder/layers_{i}/{name}"] for i in range(LAYERS)]
        )
        for name in LAYER
    }


@pytest.mark.parametrize("scan", [False, True])
def test_the_way_there(theirs: dict[str, np.ndarray], tmp_path: Path, scan: bool) -> None:
    save(OF_KERASHUB, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "out.safetensors", to="jax", set={"scan": scan})
    assert_same(load_file(tmp_path / "out.safetensors"), stacked(theirs) if scan else theirs)


def test_its_model_computes_the_same_with_our_leaves(stored: dict[str, np.ndarray]) -> None:
    told = json.loads((PEERS / "kerashub.json").read_text())
    assert told["versions"]["keras-hub"] == "0.32.0"
    assert told["leaves"] == told["loaded"] == told["same"] == 3 + LAYERS * len(LAYER)
    for output, width in (("hidden", OF_KERASHUB.decoder.embed), ("logits", OF_KERASHUB.decoder.vocab)):
        found, wanted = stored[f"kerashub/{output}"], stored[f"transformers/{output}"]
        assert found.shape == wanted.shape == (*stored["tokens"].shape, width)
        assert np.abs(found - wanted).max() / np.abs(wanted).max() < 5e-6, output
