"""After a value that could not be made, nothing else is blamed for what it would have been."""

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import SurgeryError


@pytest.mark.parametrize(
    "rules",
    [
        "{fill: w, value: \"arange(24, 'float32')\"}",
        "{fill: w, from: v, value: \"reshape(x, 'a')\"}",
        "{add: w, value: \"arange(24, 'float32')\"}",
        "{match: v, to: {w: \"reshape(x, 'a')\", v: x}}",
        "{match: v, to: {w: \"pad(x, 0, '24')\", v: x}}",
    ],
)
def test_a_leaf_whose_value_failed_has_no_wrong_shape(rules, tmp_path):
    source, target = tmp_path / "source.npz", tmp_path / "target.npz"
    np.savez(source, w=np.ones((2, 3), np.float32), v=np.ones(6, np.float32))
    np.savez(target, w=np.ones(24, np.float32), v=np.ones(6, np.float32))
    with pytest.raises(SurgeryError) as caught:
        ckpt_surgery.plan(f"version: 1\nrules:\n  - {rules}\n", source, target=target)
    assert len(caught.value.problems) == 1
    assert "has shape" not in caught.value.problems[0].message
