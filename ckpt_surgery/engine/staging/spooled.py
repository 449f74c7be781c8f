"""The local directory in which a checkpoint for an object store is built before the upload.

Formats whose writers write in place (a file that is made in its full size and filled by several threads) need
a file system. Their files are written to a directory of this user below the system's directory for temporary
files, are read back there, and are uploaded when they are complete. A run that is resumed on the same machine
finds what it has written.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ckpt_surgery.core.errors import StorageError, add_sentence
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.checks import check_space
from ckpt_surgery.engine.staging.local import DirectoryStage
from ckpt_surgery.engine.staging.object_lock import ObjectLock
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import path_text

_TMPDIR = "Set TMPDIR to a directory of yours with enough space."


def spool_of(url: str) -> Path:
    """Local directory for checkpoints to upload to a URL: one for each user, machine, and URL."""
    digest = hashlib.sha256(os.fsencode(url)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"ckpt-surgery-{os.getuid()}-{digest}")


class Upload(DirectoryStage):
    """A local directory that is uploaded to a URL when it is complete.

    The lock of the URL keeps others from the directory.
    """

    lock: ObjectLock

    def __init__(self, url: str, lock: ObjectLock, one_file: bool, identity: Mapping[str, str], nbytes: int):
        """`nbytes`: bytes that will be written."""
        self._spool = spool_of(url)
        self._nbytes = nbytes
        self._made = False
        """True once the directory is known to be this user's."""
        super().__init__(self._spool / os.path.basename(url), lock, one_file, identity)
        self.called = shown(url)

    def begin(self, resume: bool) -> None:
        """Begin as on a disk. Raises StorageError if the directory is another user's, or has no space."""
        _make(self._spool)
        self._made = True
        super().begin(resume)
        if not self.resumed:
            check_space(self.destination, self._nbytes, hint="")

    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """As on a disk."""
        left = super().remove(keep, quickly)
        if self._made:
            with contextlib.suppress(OSError):  # what is kept to be resumed is in it
                os.rmdir(self._spool)
        return left

    def report(self, failure: BaseException) -> None:
        """After a failed write, add why this directory is written to."""
        if isinstance(failure, StorageError) and path_text(self._spool) in str(failure):
            add_sentence(failure, f"{self.called} is written to {path_text(self._spool)} first", hint=_TMPDIR)


def _make(directory: Path) -> None:
    """Create the directory for this user alone: its name can be guessed. Raises StorageError."""
    with storage_errors(directory):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StorageError(
            f"{path_text(directory)} is not a directory that only this user may use",
            hint="Remove it, or set TMPDIR to a directory of yours.",
        )
