"""Errors of the system while something is read: which of them are no flaw of what is read, and what to do."""

import errno

from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.text import shown

FLAWS = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO)
)
"""Numbers of errors by which the system says that there is no such file, or one of another kind."""

_DENIED = "Whoever runs this has to be allowed to read it, and to enter the directories above it."
_DEVICE = "The device that it lies on reports an error: take another copy, and look into the system's log."
_FILES = "Raise the limit on open files (`ulimit -n`), or read with fewer threads: `workers=1`."
_OTHER = "The system refuses it, whatever the file holds: try again, or take another copy."
_HINTS = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EIO: _DEVICE,
    errno.ENODEV: _DEVICE,
    errno.ENOTCONN: _DEVICE,
    errno.ESTALE: _DEVICE,
    errno.ETIMEDOUT: _DEVICE,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
}


def access_error(path: str, error: OSError, action: str = "read") -> StorageError | None:
    """The error to raise where the system refuses to read what is there; None where it is not there.

    `action`: the participle in `PATH cannot be …`. An error without a number says nothing about the system.
    """
    if error.errno is None or error.errno in FLAWS:
        return None
    return StorageError(
        f"{shown(path)} cannot be {action}: {error.strerror}", hint=_HINTS.get(error.errno, _OTHER)
    )
