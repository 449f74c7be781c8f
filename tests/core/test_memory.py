"""What is said where there is no more memory."""

import numpy as np
import pytest

from ckpt_surgery.core.errors import OutOfMemoryError, SourceError
from ckpt_surgery.core.memory import memory_errors


def test_numpy_says_how_much_and_the_budget_is_named() -> None:
    with pytest.raises(OutOfMemoryError) as caught, memory_errors("read `a`", 2 << 30):
        np.empty(1 << 60, np.int8)
    (problem,) = caught.value.problems
    assert problem.message == (
        "there is not enough memory to read `a`, with a budget of 2.00 GiB "
        "(Unable to allocate 1.00 EiB for an array with shape (1152921504606846976,) and data type int8)"
    )
    assert problem.hint == (
        'Run where more memory is free, or lower the budget (`memory="512MiB"`) or the number of threads '
        "(`workers=1`)."
    )
    with pytest.raises(OutOfMemoryError) as caught, memory_errors("make the plan"):
        raise MemoryError
    assert str(caught.value).startswith("there is not enough memory to make the plan\n")
    with pytest.raises(SourceError, match="damaged"), memory_errors("make the plan"):
        raise SourceError("damaged")


@pytest.mark.parametrize(
    ("kind", "text"),
    [(RuntimeError, "can't start new thread"), (SystemError, "error return without exception set")],
)
def test_what_else_says_that_no_memory_is_left(kind: type[Exception], text: str) -> None:
    with pytest.raises(OutOfMemoryError, match="not enough memory to write it"), memory_errors("write it"):
        raise kind(text)
    with pytest.raises(kind, match="something else"), memory_errors("write it"):
        raise kind("something else")
