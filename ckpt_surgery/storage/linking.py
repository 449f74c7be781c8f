"""Files that share their bytes with others: reflinks."""

import errno
import fcntl
import os
from pathlib import Path

from ckpt_surgery.storage import system_calls

FICLONE = 0x40049409
"""Linux's request to share a whole file's blocks, from <linux/fs.h>: see ioctl_ficlonerange(2)."""
UNSUPPORTED = (
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOTTY,
    errno.EINVAL,
    errno.EXDEV,
    errno.ENOSYS,
    errno.EPERM,
    errno.EMLINK,
)
"""Errors by which a file system says that it cannot link at all, or cannot link these two files."""


def reflink(source: Path, destination: Path) -> None:
    """Create a file that shares all blocks with the source. Raises OSError where that is not supported."""
    if system_calls.has("clonefile"):  # macOS
        system_calls.call("clonefile", os.fsencode(source), os.fsencode(destination), 0, path=destination)
    else:
        _ficlone(source, destination)


def _ficlone(source: Path, destination: Path) -> None:
    with source.open("rb") as reader, destination.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
        except OSError:
            destination.unlink()
            raise
