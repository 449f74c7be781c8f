"""A T5 that TensorFlow wrote becomes a T5X checkpoint in one command, and no value changes on the way."""

from pathlib import Path

import numpy as np
import pytest

from tests.formats.tensorflow import bundles
from tests.formats.tensorflow.bundles import Piece
from tests.oracle.trees import restore
from tests.recipes import t5_layouts as layouts
from tests.recipes.t5_layouts import Size
from tests.recipes.test_t5 import filled, state_of
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.trees import flattened

SIZE = Size(vocab=50, embed=6, heads=4, joined=20, mlp=9, buckets=5)
PARAMETERS = layouts.t5(SIZE, "1.1", "shared")
STEP = 1_000_003
EMBEDDING = "shared/embedding"
CUTS = [[0, 13, 26, 38, 50], [0, SIZE.embed]]
"""Rows of the embedding, as a partitioner of TensorFlow's divides 50 by 4: not evenly."""


@pytest.mark.filterwarnings("ignore:Sharding info not provided when restoring:UserWarning")
def test_every_value_arrives(tmp_path: Path) -> None:
    """As three hosts write it: the embedding in parts, the blocks of the index in Snappy.

    The variables are bfloat16, with slots of a factored Adafactor in float32.
    """
    variables = filled(layouts.mesh_variables(PARAMETERS, "factored", "bfloat16"))
    variables["global_step"] = np.array(STEP, np.int64)
    pieces = [
        piece
        for name, value in variables.items()
        for piece in (bundles.parts_of(name, value, CUTS) if name == EMBEDDING else [Piece(name, value)])
    ]
    (tmp_path / "t5").mkdir()
    prefix = bundles.save_shards(tmp_path / "t5" / "model.ckpt-1000003", [pieces[i::3] for i in range(3)])
    for part in (tmp_path / "t5").glob("part*"):
        part.unlink()
    bundles.compress_index(prefix)
    saved = bundles.note_state(tmp_path / "t5", prefix)
    assert bundles.load(saved / "model.ckpt-1000003").keys() == variables.keys()
    result = run("apply", "@t5-to-t5x", saved, tmp_path / "t5x")
    assert result.exit_code == 0, result.stderr
    found, wanted = flattened(restore(tmp_path / "t5x")), state_of(PARAMETERS, variables)
    assert_same({key: np.asarray(value) for key, value in found.items()}, wanted)
