"""Rename without replacing, and exchange two names, atomically if the file system can."""

import contextlib
import ctypes
import errno
import os
import stat
import sys
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.paths import exists, path_text

_CALLS = {
    # renameat2(2), with numbers from <linux/fs.h> and <fcntl.h>
    "linux": ("renameat2", -100, 1),
    # renameatx_np(2), with numbers from <sys/stdio.h> and <sys/fcntl.h>
    "darwin": ("renameatx_np", -2, 4),
}
"""A system's rename call, its number for the working directory in place of a handle, and its flag for a
rename that fails if the target exists."""
_EXCHANGE = 2
"""The flag of either call by which two names change places."""

UNSUPPORTED = (
    *(errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP),
    *(errno.EPERM, errno.EMLINK, errno.EXDEV),  # where there are no hard links
)
"""errno values that mean "this system call is not supported here"."""


def move(product: Path, destination: Path) -> None:
    """Rename. Raises DestinationError if the destination exists, OSError for other failures."""
    try:
        _rename_exclusively(product, destination)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise DestinationError(
                f"{path_text(destination)}: another program created it during this run; it was not changed",
                hint="Choose another destination, or replace it: `overwrite=True`.",
            ) from None
        raise


def exchange(product: Path, destination: Path, aside: Path) -> None:
    """Exchange the two names; both exist. Raises OSError.

    On file systems that cannot do it in one step, what is at the destination is at `aside` meanwhile.
    """
    try:
        _rename_in_one_step(product, destination, exchange=True)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        _exchange_in_steps(product, destination, aside)


def _rename_exclusively(source: Path, target: Path) -> None:
    """Rename if the target does not exist; in two steps if the file system has no such call."""
    try:
        rename_atomically(source, target)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        if exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        os.rename(source, target)


def rename_atomically(source: Path, target: Path) -> None:
    """Rename if the target does not exist, atomically.

    A file takes its new name as a hard link where that is the only way, as on network file systems, and can
    keep the old one as well. Raises FileExistsError, and OSError with a number in `UNSUPPORTED` where there
    is no such way.
    """
    try:
        _rename_in_one_step(source, target)
    except OSError as error:
        if error.errno not in UNSUPPORTED or not stat.S_ISREG(os.lstat(source).st_mode):
            raise
        os.link(source, target)
        with contextlib.suppress(OSError):
            os.unlink(source)


def _rename_in_one_step(source: Path, target: Path, exchange: bool = False) -> None:
    if sys.platform not in _CALLS:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(target))
    name, here, exclusive = _CALLS[sys.platform]
    flags = ctypes.c_uint(_EXCHANGE if exchange else exclusive)
    system_calls.call(name, here, os.fsencode(source), here, os.fsencode(target), flags, path=target)


def _exchange_in_steps(product: Path, destination: Path, aside: Path) -> None:
    os.rename(destination, aside)
    try:
        os.rename(product, destination)
    except BaseException:
        os.rename(aside, destination)
        raise
    os.rename(aside, product)
