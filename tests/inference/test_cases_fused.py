"""Query, key and value in one matrix, and in three."""

import numpy as np
import pytest

from tests.inference.cases.fused import gpt2, gpt2_in_heads, megatron
from tests.inference.cases.running import assert_found
from tests.recipes.decoder_layouts import Decoder
from tests.recipes.leaves import hf_arrays


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize(("layers", "embed", "heads"), [(5, 24, 3), (4, 16, 4)])
def test_gpt_2(layers: int, embed: int, heads: int) -> None:
    """By hand: embeddings, the last norm (2), norms (2), fused (2), out (2), mlp (1)."""
    theirs = gpt2(layers, embed)
    ours = gpt2_in_heads(theirs, layers, embed, heads)
    assert_found(theirs, ours, 9)
    assert_found(ours, theirs, 9)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_megatron(kv_heads: int) -> None:
    """By hand: ends (3), fused attention, fused mlp, norms, out, down."""
    model = Decoder("llama3", 5, 6, kv_heads, 8, 24, 40, 50)
    theirs = hf_arrays(model, np.dtype(np.float32))
    ours = megatron(model, theirs)
    assert_found(theirs, ours, 8)
    assert_found(ours, theirs, 8)
