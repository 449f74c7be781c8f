"""`resize`, compared with `jax.image.resize`."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.resizing import Resize
from tests.support.evaluation import evaluate
from tests.support.heavy import jax

F32 = dtype_named("float32")


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", ["linear", "cubic", "bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("shape", "resized"),
    [
        ((14, 14, 8), (16, 16, 8)),  # a vision transformer at another resolution
        ((24, 24, 3), (7, 31, 3)),  # one axis down, one up
        ((512, 4), (2048, 4)),  # longer contexts
        ((100, 4), (3, 4)),
        ((1, 5), (4, 5)),
        ((5, 2), (1, 2)),
        ((3, 4), (3, 4)),  # nothing to do
    ],
)
def test_as_jax_does(shape: tuple, resized: tuple, method: str, antialias: bool) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.asarray(jax.image.resize(x, resized, method, antialias=antialias))
    result = evaluate(Resize(resized, method, antialias), [x])
    assert (result.shape, result.dtype) == (resized, np.float32)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 * np.abs(x).max())


def test_a_region_needs_only_its_surroundings() -> None:
    x = ArraySpec((1000, 8), F32)
    assert Resize((2000, 8), "linear").needs(Region((1000, 2), (1002, 3)), [x]) == [
        (0, Region((499, 2), (502, 3)))
    ]


def test_what_is_refused() -> None:
    for shape, dtype, message in (
        ((4,), "float32", "has 2 axes, unlike float32"),
        ((4, 4), "int32", "needs floats"),
        ((0, 4), "float32", "no elements"),
    ):
        with pytest.raises(FunctionError, match=message):
            Resize((2, 2), "linear").infer([ArraySpec(shape, dtype_named(dtype))])
    with pytest.raises(FunctionError, match="'nearest' is not one of linear, cubic"):
        Resize((2, 2), "nearest")
    with pytest.raises(FunctionError, match="at least 1"):
        Resize((2, 0), "linear")
