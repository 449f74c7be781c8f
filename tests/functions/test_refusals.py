"""What functions refuse from shapes and dtypes alone, before any data; each module's tests have its table."""

import pytest

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
