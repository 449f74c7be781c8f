"""Errors of the operating system while reading: which ones mean a missing file, and hints for the others."""

import errno
import os

from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.text import did_you_mean, shown

FLAWS = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO)
)
"""errno values that mean: there is no such file, or it is of another kind."""

_DENIED = "Whoever runs this has to be allowed to read it, and to enter the directories above it."
_DEVICE = "The device that it lies on reports an error: take another copy, and look into the system's log."
_FILES = "Raise the limit on open files (`ulimit -n`), or read with fewer threads: `workers=1`."
_HINTS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _DENIED),
    **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT), _DEVICE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _FILES),
}


def access_error(path: str, error: OSError, action: str = "read") -> StorageError | None:
    """Make a StorageError of a refusal by the operating system; None if there is simply no such file.

    `action`: the participle in `PATH cannot be …`. An error without an errno is not from the system.
    """
    if error.errno is None or error.errno in FLAWS:
        return None
    other = "The system refuses it, whatever the file holds: try again, or take another copy."
    message = f"{shown(path)} cannot be {action}: {error.strerror}"
    return StorageError(message, hint=_HINTS.get(error.errno, other))


def name_beside(path: str) -> str:
    """`; did you mean `old`?`, where such a name is beside a path of this machine, else nothing."""
    directory, name = os.path.split(os.path.abspath(path))
    stem = os.path.splitext(name)[0]
    try:
        alike = [entry for entry in os.listdir(directory) if did_you_mean(stem, [os.path.splitext(entry)[0]])]
    except OSError:
        return ""
    return did_you_mean(name, map(shown, alike))
