"""What follows from shapes and dtypes alone, before any data; each module's tests have its tables."""

import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from tests.functions import (
    test_arithmetic,
    test_contractions,
    test_joining,
    test_layout,
    test_masks,
    test_operators,
    test_quantization,
    test_reductions,
)
from tests.support.arrays import numbers
from tests.support.evaluation import spec_of
from tests.support.lazy_arrays import declared_by

REFUSED = [
    *test_arithmetic.REFUSED,
    *test_contractions.REFUSED,
    *test_joining.REFUSED,
    *test_layout.REFUSED,
    *test_masks.REFUSED,
    *test_operators.REFUSED,
    *test_quantization.REFUSED,
    *test_reductions.REFUSED,
]


@pytest.mark.parametrize(("function", "texts", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_refused_before_any_data(function: Function, texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        function.infer([spec_of(numbers(text)) for text in texts])
    assert message in str(caught.value)


DTYPES = [*test_arithmetic.DTYPES, *test_operators.DTYPES, *test_reductions.DTYPES]


@pytest.mark.parametrize(("function", "names", "computed", "declared"), DTYPES, ids=str)
def test_dtypes(function: Function, names: tuple[str, ...], computed: str, declared: str) -> None:
    dtypes = [dtype_named(name) for name in names]
    assert function.infer([ArraySpec((2,), dtype) for dtype in dtypes]).dtype.name == computed
    assert declared_by(function, *dtypes).name == declared
