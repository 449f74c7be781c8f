"""The local directory in which a checkpoint for an object store is made, before it is uploaded.

Formats whose writers write in place (a file that is made in its full size and filled by several threads) need
a file system. Their files are written to a directory of this user below the system's directory for temporary
files, are read back there, and are uploaded when they are complete. A run that is resumed on the same machine
finds what it has written.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.engine.staging import local
from ckpt_surgery.engine.staging.outcomes import add
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import path_text

_TMPDIR = "Set TMPDIR to a directory of yours with enough space."


def spool_of(url: str) -> Path:
    """The directory for checkpoints on their way to a URL: one for each user, machine, and URL."""
    digest = hashlib.sha256(os.fsencode(url)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"ckpt-surgery-{os.getuid()}-{digest}")


@contextlib.contextmanager
def spooled(
    url: str, one_file: bool, identity: Mapping[str, str], resume: bool, nbytes: int
) -> Iterator[local.Staging]:
    """A local directory to write what will be uploaded to a URL; it is removed at the end.

    `nbytes`: the space it will take. `one_file`, `identity`, `resume`, and what happens after a failure are
    as for `local.staged`. Nobody else may use it meanwhile: the lock of the URL is held.

    Raises StorageError where the space is too little, or the directory is somebody else's; PlanError where
    there is something to resume that another run did.
    """
    directory = spool_of(url)
    _make(directory)
    try:
        destination = directory / os.path.basename(url)
        with local.staged(destination, one_file, identity, resume, called=shown(url)) as staging:
            if not staging.resumed:
                _check_space(directory, nbytes)
            yield staging
    except StorageError as error:
        if path_text(directory) in str(error):
            add(error, f"{shown(url)} is written to {path_text(directory)} first", hint=_TMPDIR)
        raise
    finally:
        with contextlib.suppress(OSError):  # what is kept to be resumed is in it
            os.rmdir(directory)


def _make(directory: Path) -> None:
    """Make the directory, for this user alone: its name can be guessed. Raises StorageError."""
    with storage_errors(directory):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageError(
            f"{path_text(directory)} is not a directory that only this user may use",
            hint="Remove it, or set TMPDIR to a directory of yours.",
        )


def _check_space(directory: Path, nbytes: int) -> None:
    with storage_errors(directory):
        free = shutil.disk_usage(directory).free
    if free < nbytes:
        raise StorageError(
            f"{path_text(directory)}: {bytes_text(nbytes)} are to be written, {bytes_text(free)} are free"
        )
