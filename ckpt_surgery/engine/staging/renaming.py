"""Rename without replacing, and let two names change places, in one step where the file system can."""

import ctypes
import errno
import functools
import os
from pathlib import Path

from ckpt_surgery.core.errors import (
    DestinationError,
)
from ckpt_surgery.storage.paths import exists, path_text

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
"""Linux's numbers, from <linux/fs.h> and <fcntl.h>: see renameat2(2)."""


def move(product: Path, destination: Path) -> None:
    """Rename, refusing a destination that exists."""
    try:
        _rename(product, destination, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise DestinationError(
                f"{path_text(destination)}: came into being while this run was at work; it was left alone",
                hint="Choose another destination, or replace it: `overwrite=True`.",
            ) from None
        raise


def exchange(product: Path, destination: Path) -> None:
    """Let the two change places."""
    _rename(product, destination, _RENAME_EXCHANGE)


def _rename(source: Path, target: Path, flags: int) -> None:
    """renameat2(2), or the nearest that there is where it is not supported."""
    try:
        _renameat2(source, target, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
            raise
        if flags == _RENAME_EXCHANGE:
            _exchange_in_steps(source, target)
        elif exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        else:
            os.rename(source, target)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    function = getattr(_libc(), "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(target))
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _exchange_in_steps(product: Path, destination: Path) -> None:
    kept = aside(destination)
    os.rename(destination, kept)
    try:
        os.rename(product, destination)
    except BaseException:
        os.rename(kept, destination)
        raise
    os.rename(kept, product)


def aside(destination: Path) -> Path:
    """Where the old checkpoint is for a moment, on file systems without RENAME_EXCHANGE."""
    return destination.with_name(f".{destination.name}.ckpt-surgery-old")
