"""Durable files and atomic names: flush files in a way that signals can interrupt, rename and exchange.

Synchronizing a file blocks its thread until all of it is on the disk, and a thread that waits for a disk
cannot handle signals. So other threads do it, and the main thread waits for them in short steps.
"""

import contextlib
import ctypes
import errno
import fcntl
import math
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ckpt_surgery.core.cancellation import Cancelled, cancelled_by, raise_if_cancelled
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.paths import exists, path_text

POLL = 0.1
"""Longest wait in seconds; signals are handled between two waits."""
PIECE = 16 << 20
"""Bytes of a file flushed at a time: a process cannot end while a thread waits for the disk."""


def interruptibly(work: Callable[[], None], seconds: float = math.inf) -> bool:
    """Run `work` in a daemon thread and wait for it; False if that takes too long. Raises what it raises.

    A signal that is raised as an exception ends the wait at once, and the work where it next calls
    `raise_if_cancelled`; so does the end of the time.
    """
    stop, over = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def body() -> None:
        try:
            with cancelled_by(stop), contextlib.suppress(Cancelled):
                work()
        except BaseException as error:  # noqa: BLE001 (raised by the thread that waits)
            failures.append(error)
        finally:
            over.set()

    until = time.monotonic() + seconds
    try:
        threading.Thread(target=body, name="sync", daemon=True).start()
        while not over.wait(POLL) and time.monotonic() < until:
            pass
    finally:
        stop.set()
    if failures:
        raise failures[0]
    return over.is_set()


def sync_tree(directory: Path) -> None:
    """Flush every file, and every directory after its contents. Raises OSError.

    Links and pipes are names alone, which the directories hold.
    """

    def refuse(error: OSError) -> None:
        raise error

    for folder, _, files in os.walk(directory, topdown=False, onerror=refuse):
        for name in files:
            path = Path(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                sync_file(path)
        sync_directory(Path(folder))


def sync_file(file: Path) -> None:
    """Flush a file, large ones piece by piece. Raises OSError."""
    _sync(file, os.O_NOFOLLOW)


def sync_directory(directory: Path) -> None:
    """Flush the entries of a directory. Raises OSError."""
    _sync(directory, os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        if not flags & os.O_DIRECTORY:
            _write_back(handle, path)
        raise_if_cancelled()
        _flush(handle)
    finally:
        os.close(handle)


def _write_back(handle: int, file: Path) -> None:
    """Write back the pages of a large file piece by piece, if the system can. Raises OSError.

    This alone makes nothing durable: the disk's own cache and the file's metadata come with `_flush`.
    """
    size = os.fstat(handle).st_size
    if size <= PIECE or not system_calls.has("sync_file_range"):
        return
    for start in range(0, size, PIECE):
        raise_if_cancelled()
        range_ = ctypes.c_int64(start), ctypes.c_int64(PIECE)
        try:  # the flags: wait for started writes, start the others, and wait for them
            system_calls.call("sync_file_range", handle, *range_, ctypes.c_uint(1 | 2 | 4), path=file)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP):
                raise
            return


def _flush(handle: int) -> None:
    """Flush a file through the disk's cache, in which fsync(2) alone leaves it on macOS."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(handle, full)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):  # network file systems
                raise
    os.fsync(handle)


_CALLS = {
    # renameat2(2), with numbers from <linux/fs.h> and <fcntl.h>
    "linux": ("renameat2", -100, 1),
    # renameatx_np(2), with numbers from <sys/stdio.h> and <sys/fcntl.h>
    "darwin": ("renameatx_np", -2, 4),
}
"""A system's rename call, its number for the working directory in place of a handle, and its flag for a
rename that fails if the target exists."""
UNSUPPORTED = (
    *(errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP),
    *(errno.EPERM, errno.EMLINK, errno.EXDEV),  # where there are no hard links
)
"""errno values that mean "this system call is not supported here"."""


def move(product: Path, destination: Path) -> None:
    """Rename. Raises DestinationError if the destination exists, OSError for other failures."""
    try:
        try:
            rename_atomically(product, destination)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            if exists(destination):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            os.rename(product, destination)  # in two steps where the file system has no such call
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
        os.rename(destination, aside)
        try:
            os.rename(product, destination)
        except BaseException:
            os.rename(aside, destination)
            raise
        os.rename(aside, product)


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
    flags = ctypes.c_uint(2 if exchange else exclusive)  # 2 is the flag of either call for it
    system_calls.call(name, here, os.fsencode(source), here, os.fsencode(target), flags, path=target)
