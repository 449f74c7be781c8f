"""Functions of the C library that Python does not offer, called by name."""

import ctypes
import errno
import functools
import os
from pathlib import Path


def has(name: str) -> bool:
    """Whether the C library of this system has the function."""
    return hasattr(_library(), name)


def call(name: str, *arguments: bytes | int | ctypes.c_uint | ctypes.c_int64, path: Path) -> None:
    """Call a function that returns 0 on success and sets errno otherwise.

    Raises OSError with that number and `path`; with ENOSYS where the system has no such function.
    """
    function = getattr(_library(), name, None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(path))
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
