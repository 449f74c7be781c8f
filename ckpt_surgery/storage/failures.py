"""What the file system refuses, as an error that names the path and says what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ckpt_surgery.core.errors import (
    StorageError,
)
from ckpt_surgery.storage.paths import path_text

_HINTS = {
    errno.ENOSPC: "Free some space, or choose a destination on another file system.",
    errno.EDQUOT: "Free some of your quota, or choose a destination on another file system.",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f), or choose another file system.",
    errno.EACCES: "Check the permissions of the destination's directory.",
    errno.EPERM: "Check the permissions of the destination's directory.",
    errno.EROFS: "The file system is mounted read-only: choose another destination.",
    errno.EIO: "The device reports an error: look into the system's log before trusting it again.",
    errno.ENAMETOOLONG: "Choose a shorter name: the temporary directory's is 31 bytes longer.",
}


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn any OSError into StorageError with the path that it names, else with this one."""
    try:
        yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        where = named if named.is_absolute() else path
        reason = error.strerror or str(error) or type(error).__name__
        raise StorageError(f"{path_text(where)}: {reason}", hint=_HINTS.get(error.errno or 0)) from error
