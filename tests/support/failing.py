"""Functions that fail, for what a test replaces."""

import os
from collections.abc import Callable
from typing import Any


def raising(make: Callable[[], BaseException]) -> Callable[..., Any]:
    """A function that raises a new error whenever it is called, whatever its arguments."""

    def fail(*_: object, **__: object) -> Any:
        raise make()

    return fail


def refusing(number: int) -> Callable[..., Any]:
    """A function that fails as a call of the system does, with an error of `errno`."""
    return raising(lambda: OSError(number, os.strerror(number)))
