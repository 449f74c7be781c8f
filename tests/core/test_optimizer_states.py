"""What counts as a parameter of a model, by names of keys."""

import pytest

from ckpt_surgery.core.optimizer_states import is_parameter
from tests.support.leaves import array_leaf


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        ("params/w", True),
        ("target/encoder/w", True),
        ("flax_mutables/batch_stats/mean", False),
        ("state/flax_mutables/x", False),
        ("batch_stats/bn/mean", False),
        ("cache/layer_0/key", False),
        ("intermediates/h", False),
        ("params_axes/w", False),
        ("nnx_aux/rngs/key", False),
        ("opt_state/0/mu/params/w", False),
        ("params/cache/w", True),  # a module called so
        ("model/params/intermediates/w", True),
    ],
)
def test_variables_that_are_not_trained_are_no_parameters(key: str, is_one: bool) -> None:
    assert is_parameter(array_leaf(key, (2, 3))) is is_one
