"""Files and directories that share their bytes with others: which may, and whether the file system can.

A reflink shares blocks until one of the two files is changed, so it is always safe. A hard link is one file
with two names: a program that rewrites the source in place changes the new checkpoint too.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.protocols import DataFile, Linkable
from ckpt_surgery.core.text import shown
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.listing import domain_of
from ckpt_surgery.storage.paths import path_text
from ckpt_surgery.storage.store import store_of

FICLONE = 0x40049409
"""Linux's request to share a whole file's blocks, from <linux/fs.h>: see ioctl_ficlonerange(2)."""
UNSUPPORTED = (
    *(errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM),
    *(errno.EMLINK, errno.ETXTBSY),
)
"""Errors by which a file system says that it cannot link at all, or cannot link these two files."""


@dataclass(frozen=True)
class SafeToHardlink:
    """Decides which files may be hard-linked, because nothing rewrites them in place."""

    checkpoints: Mapping[str, bool] = field(default_factory=dict)
    """Whether the writers of a checkpoint replace its files, by the real path of its directory or file."""

    def allows(self, real: str) -> bool:
        """Whether a file may be hard-linked: replaced by its writer, in a Hugging Face cache, or read-only.

        `real`: its path without links. Raises OSError where the file is gone.
        """
        innermost = real  # of texts alone: this is asked about every file
        while innermost and innermost not in self.checkpoints:
            innermost = innermost.rpartition(os.sep)[0]
        if self.checkpoints.get(innermost, False):
            return True
        # The blobs of a Hugging Face cache: `<repository>/blobs/…`, beside `snapshots`.
        blobs = (parent for parent in Path(real).parents if parent.name == "blobs")
        cached = any((directory.parent / "snapshots").is_dir() for directory in blobs)
        return cached or os.stat(real).st_mode & 0o222 == 0


def can_reflink(source: str, directory: Path) -> bool | None:
    """Whether a file can be reflinked into a directory; None where only trying it there would tell.

    It is tried with a file that never gets a name, so that nothing is left and nobody sees it. macOS has no
    such files; its own file system has reflinks, which is taken for granted there.
    """
    if system_calls.has("clonefile"):
        return True
    try:
        unnamed = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):  # the system, or the file system, has no such files
        return None
    try:
        with open(source, "rb") as reader:
            fcntl.ioctl(unnamed, FICLONE, reader.fileno())
    except OSError:
        return False
    finally:
        os.close(unnamed)
    return True


def reflink(source: Path, destination: Path) -> None:
    """Create a file that shares all blocks with the source. Raises OSError where that is not supported."""
    if system_calls.has("clonefile"):  # macOS
        system_calls.call("clonefile", os.fsencode(source), os.fsencode(destination), 0, path=destination)
        return
    with source.open("rb") as reader, destination.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
        except OSError:
            destination.unlink()
            raise


def link_rest(source: Path, target: Path, keep: Set[str], leave_out: Set[str]) -> None:
    """Fill `target` with the entries of `source`, besides those named in `keep` that are there already.

    Everything else in `target` is removed first, such as what an earlier attempt linked. `leave_out`: names
    of entries of `source` that are not taken. A file becomes a hard link, or a copy where that is impossible;
    a symbolic link stays one. Raises OSError.
    """
    for entry in list(os.scandir(target)):
        if entry.name in keep:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry)
        else:
            os.unlink(entry)
    for entry in list(os.scandir(source)):
        if entry.name not in leave_out:
            _link_entry(Path(entry.path), target / entry.name)


def _link_entry(old: Path, new: Path) -> None:
    if old.is_symlink():
        os.symlink(os.readlink(old), new)
    elif old.is_dir():
        new.mkdir()
        for entry in list(os.scandir(old)):
            _link_entry(Path(entry.path), new / entry.name)
        shutil.copystat(old, new)
    else:
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            shutil.copy2(old, new)


def linking_rule(
    destination: str | None, mode: LinkMode, sources: Iterable[str], replaced: SafeToHardlink
) -> Callable[[DataFile], Linkable] | None:
    """Rule by which whole files can be linked into a destination; None: none can.

    Without a destination, it is assumed to be on the file system of the first of `sources`, paths and URLs.
    The rule raises StorageError where only reflinks may be used, and cannot.
    """
    if destination is not None and is_url(destination):
        store = store_of(destination)[0]
        return lambda file: Linkable.YES if store.copies(file.path, file.size) else Linkable.NO
    parents = [] if destination is None else [Path(destination).absolute().parent]
    for path in sources:
        if not is_url(path):
            own = Path(path).absolute()
            parents.append(own if own.is_dir() else own.parent)
    directory = next((parent for parent in parents if parent.exists()), None)
    if directory is None:
        return None
    domain = domain_of(os.stat(directory))
    probed: list[bool | None] = []

    def can_be_reflinked(file: DataFile) -> bool | None:
        """Tried with the first file that is asked about; None where only the run can tell."""
        if not probed:
            probed.append(can_reflink(file.path, directory))
        return probed[0]

    def linkable(file: DataFile) -> Linkable:
        apart = file.domain != domain
        if mode is LinkMode.REFLINK and (apart or can_be_reflinked(file) is False):
            why = "they are on different file systems" if apart else "the file system has no reflinks"
            raise StorageError(
                f"{shown(file.path)} cannot be reflinked into {path_text(directory)}: {why}",
                hint='Leave the choice to `link_mode="auto"`, or copy everything: `link_mode="copy"`.',
            )
        if apart:
            return Linkable.NO
        always = mode is not LinkMode.AUTO or replaced.allows(file.path) or can_be_reflinked(file)
        return Linkable.YES if always else Linkable.IF_NEVER_REWRITTEN

    return linkable
