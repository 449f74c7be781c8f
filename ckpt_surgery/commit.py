"""How a checkpoint comes into being all at once: a lock, a temporary directory, one rename.

Everything is written into a directory with a random name beside the destination. It, or the one file
in it, becomes the destination by one rename, after all of it has reached the disk. Until then nobody
sees it, and whatever goes wrong, the destination is what it was before.

    with interruptible(), staged(destination) as staging:
        ...  # write into staging.directory
        publish(staging, overwrite=False)
"""

import contextlib
import ctypes
import errno
import functools
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ckpt_surgery.core.errors import (
    DestinationError,
    Interrupted,
    Problem,
    StorageError,
    SurgeryError,
    UsageError,
    VerificationError,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.locks import acquire, check

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
"""Linux's numbers, from <linux/fs.h> and <fcntl.h>: see renameat2(2)."""


@dataclass
class Staging:
    """A checkpoint on its way: where it is written, and where it will be."""

    destination: Path
    """What the rename creates or replaces; absolute."""
    directory: Path
    """Beside the destination, empty at first. Nobody else looks at it."""
    product: Path
    """What becomes the destination: the directory, or the one file in it, which has the same name."""
    notices: tuple[str, ...] = ()
    """What was found and put in order, one sentence each: a dead run's lock, its leftovers."""
    made: os.stat_result | None = None
    """Of the product, to recognize it by at the destination; a file's is known when it is published."""


# --- before anything is written -------------------------------------------------------------------


def check_paths(sources: Sequence[Path], destination: Path, overwrite: bool) -> None:
    """Refuse destinations that would harm a source, exist already, or cannot be created.

    Links, `..` and trailing slashes are seen through. Raises UsageError where destination and source
    are one or lie in one another, or the parent directory is missing, DestinationError where something is
    in the way or another run is writing there, StorageError where the parent is read-only.
    """
    with storage_errors(destination):
        for source in sources:
            _check_apart(source, destination)
        _check_absent(destination, overwrite)
        _check_parent(destination)
        check(lock_of(absolute(destination)))


def _check_apart(source: Path, destination: Path) -> None:
    if same_place(source, destination):
        problem = f"{path_text(destination)}: the destination is the source itself"
    elif _is_part(destination, source):
        problem = f"{path_text(destination)}: the destination is a file of the source {path_text(source)}"
    elif lies_in(destination, source):
        problem = f"{path_text(destination)}: the destination lies inside the source {path_text(source)}"
    elif lies_in(source, destination):
        problem = f"{path_text(source)}: the source lies inside the destination {path_text(destination)}"
    else:
        return
    raise UsageError(problem, hint="Choose another destination; sources are never written to.")


def same_place(a: Path, b: Path) -> bool:
    """Whether both are one place; also for paths that do not exist, and through bind mounts."""
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    return a.exists() and b.exists() and os.path.samefile(a, b)


_PARTS = re.compile(r"\.(index|meta|data-[0-9]{5}-of-[0-9]{5})")
"""How the names of TensorFlow's files go on after the prefix that stands for all of them."""


def _is_part(path: Path, prefix: Path) -> bool:
    """Whether `prefix` is no file but what the names of a checkpoint's files begin with, `path`'s too."""
    begins = path.name.startswith(prefix.name) and _PARTS.fullmatch(path.name, len(prefix.name))
    return bool(begins) and not prefix.exists() and same_place(path.parent, prefix.parent)


def check_files(files: Iterable[str], destination: Path) -> None:
    """Refuse to replace one of the sources' `files`, which may lie in any directory. Raises UsageError."""
    if not destination.is_file():
        return
    for file in files:
        if same_place(Path(file), destination):
            raise UsageError(
                f"{path_text(destination)}: the destination is a file of a source",
                hint="Choose another destination; sources are never written to.",
            )


def lies_in(inner: Path, outer: Path) -> bool:
    return any(same_place(parent, outer) for parent in Path(os.path.realpath(inner)).parents)


def _check_absent(destination: Path, overwrite: bool) -> None:
    if not exists(destination):
        return
    if not overwrite:
        raise DestinationError(
            f"{path_text(destination)}: exists already",
            hint="Choose another destination, or replace it: `overwrite=True`.",
        )
    if destination.is_symlink():
        raise DestinationError(
            f"{path_text(destination)}: is a symbolic link; only what it points at could be replaced",
            hint=f"Name {path_text(Path(os.path.realpath(destination)))} instead, or remove the link.",
        )
    if same_place(Path.cwd(), destination) or lies_in(Path.cwd(), destination):
        raise UsageError(
            f"{path_text(destination)}: holds the working directory and will not be replaced",
            hint="Name the checkpoint's own directory.",
        )


def _check_parent(destination: Path) -> None:
    """Raises UsageError where there is no directory to create it in, StorageError where that is read-only."""
    parent = absolute(destination).parent
    if not parent.is_dir():
        raise UsageError(f"{path_text(parent)}: no such directory", hint="Create it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{path_text(parent)}: cannot be written to", hint="Check its permissions.")


def check_document(document: Path, others: Iterable[Path]) -> None:
    """Refuse to write a document over one of the other paths of a command, or into it. Raises UsageError.

    The others are what is read and the destination; they need not exist.
    """
    with storage_errors(document):
        _check_parent(document)
        for other in others:
            if same_place(document, other) or lies_in(document, other):
                raise UsageError(
                    f"{path_text(document)}: a document cannot be written over or into {path_text(other)}",
                    hint="Name a file elsewhere.",
                )


def check_space(destination: Path, bytes_needed: int) -> None:
    """Raise StorageError where the destination's file system has less than `bytes_needed` bytes free."""
    parent = absolute(destination).parent
    with storage_errors(parent):
        free = shutil.disk_usage(parent).free
    if free < bytes_needed:
        raise StorageError(
            f"{path_text(parent)}: {bytes_needed / 2**30:.2f} GiB are to be written, "
            f"{free / 2**30:.2f} are free",
            hint="Free some space, or choose a destination on another file system.",
        )


# --- the temporary directory ----------------------------------------------------------------------


@contextlib.contextmanager
def staged(destination: Path, one_file: bool = False) -> Iterator[Staging]:
    """Lock a destination and make a temporary directory beside it; afterwards neither is left.

    With `one_file` not the directory is published, but the file that is written into it under the
    destination's name.

    What a dead run left is put in order first: its lock is taken over, its temporary directory
    removed, and a checkpoint that it had moved aside is put back. On any failure inside, the
    temporary directory goes and the destination stays as it was.

    Raises DestinationError where a living run holds the lock, StorageError for what the file system
    refuses.
    """
    destination = absolute(destination)
    lock = lock_of(destination)
    directory = destination.with_name(f".{destination.name}.ckpt-surgery-{secrets.token_hex(8)}")
    staging = Staging(destination, directory, directory / destination.name if one_file else directory)
    held = False
    try:
        with storage_errors(lock), deferred():
            staging.notices = acquire(lock)
            held = True
        with storage_errors(destination):
            staging.notices += _tidy(destination)
            os.mkdir(directory)
            staging.made = None if one_file else os.lstat(directory)
        yield staging
        with storage_errors(destination):
            _tidy(destination)
            os.unlink(lock)
            held = False
    except BaseException as failure:
        _tell_outcome(staging, failure)
        if held:
            _clear(destination, lock, failure)
        raise


def lock_of(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.ckpt-surgery-lock")


def _clear(destination: Path, lock: Path, failure: BaseException) -> None:
    """Remove temporary and lock after a failure; what cannot be removed is added to its message."""
    try:
        with unhindered():
            _tidy(destination)
            os.unlink(lock)
    except OSError as error:
        reason = error.strerror or str(error)
        _add(
            failure, f"{path_text(lock)} and its directory stay behind ({reason}); the next run removes them"
        )


def _tell_outcome(staging: Staging, failure: BaseException) -> None:
    """Say so where a run is stopped after all that matters was done."""
    destination, made = staging.destination, staging.made
    try:
        published = made is not None and exists(destination) and os.path.samestat(made, os.lstat(destination))
    except OSError as error:
        _add(failure, f"{path_text(destination)} cannot be looked at ({error.strerror})")
        return
    if published:
        _add(failure, f"{path_text(destination)} itself is new and complete")
    elif isinstance(failure, Interrupted):
        _add(failure, f"nothing was published: {path_text(destination)} is as it was before")


def _add(failure: BaseException, sentence: str) -> None:
    if isinstance(failure, SurgeryError):
        failure.problems += (Problem(sentence),)
        failure.args = ("\n\n".join(map(str, failure.problems)),)
    else:
        failure.add_note(sentence)


def _tidy(destination: Path) -> tuple[str, ...]:
    """Put a checkpoint back that was moved aside, remove all temporary directories; what was done.

    Only for whoever holds the lock, which makes sure that nobody uses them.
    """
    pattern = re.compile(re.escape(f".{destination.name}.ckpt-surgery-") + "([0-9a-f]{16}|old)")
    notices = []
    if exists(aside(destination)) and not exists(destination):
        os.rename(aside(destination), destination)
        notices.append(f"put {path_text(destination)} back, which a run had moved aside before it ended")
    with os.scandir(destination.parent) as entries:
        found = [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]
    for path in found:
        _remove(path)
        notices.append(f"removed {path_text(path)}, which an unfinished run left behind")
    return tuple(notices)


def _remove(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


# --- publication ----------------------------------------------------------------------------------


def publish(staging: Staging, overwrite: bool) -> None:
    """Make the temporary directory, or the file in it, the destination, once every byte is on the disk.

    An existing destination is refused, also one that has come into being meanwhile; with `overwrite`
    the two change places in one step and the old one is removed afterwards. Where the file system
    cannot do that (renameat2(2) with RENAME_NOREPLACE and RENAME_EXCHANGE), the old one is moved aside
    first, which leaves a moment without either; the next run puts it back should this one die then.

    Raises DestinationError where something is in the way, StorageError for what the file system refuses,
    VerificationError where there is anything but the one file that was to be written.
    """
    product, destination = staging.product, staging.destination
    with storage_errors(staging.directory):
        if product != staging.directory:
            _check_alone(product)
        _sync_tree(staging.directory)
        staging.made = os.lstat(product)
    with deferred(), storage_errors(destination):
        swapped = overwrite and exists(destination)
        (exchange if swapped else move)(product, destination)
        try:
            # All directories that have changed; the temporary one has if it is not what was renamed.
            for directory in dict.fromkeys((destination.parent, product.parent)):
                _sync(directory, os.O_DIRECTORY)
        except OSError:
            # Not durable means not published: put things back before the old one could be removed.
            if swapped:
                exchange(product, destination)
            else:
                move(destination, product)
            raise


def _check_alone(file: Path) -> None:
    """Nothing that was written may be lost: the directory holds this one file."""
    written = sorted(os.listdir(file.parent))
    if written != [file.name] or not stat.S_ISREG(os.lstat(file).st_mode):
        others = ", ".join(shown(name) for name in written if name != file.name)
        raise VerificationError(
            f"{shown(file.name)} was to be written as one file; there is {others or 'something else'}"
        )


def _sync_tree(directory: Path) -> None:
    """fsync every file, then every directory, each after what it holds."""

    def refuse(error: OSError) -> None:
        raise error

    for folder, _, files in os.walk(directory, topdown=False, onerror=refuse):
        for name in files:
            _sync(Path(folder, name), os.O_NOFOLLOW)
        _sync(Path(folder), os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


# --- signals and errors ---------------------------------------------------------------------------


@dataclass
class _Signals:
    """What the handlers need to know; signals belong to the whole process, and so does this."""

    deferring: bool = False
    """True while a section runs that must not be interrupted."""
    pending: int | None = None
    """The signal that came during one."""


_signals = _Signals()

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to stop: Ctrl-C, a scheduler, a terminal that has gone away."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted, raised in the main thread at once.

    Elsewhere than in the main thread this does nothing, and a signal that is ignored stays ignored: `nohup`
    ignores SIGHUP, so that a run survives its terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [n for n in _STOPPING if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _on_signal) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Later signals do not stop what the first one has set going: workers that end, the removal."""
    if _signals.deferring:
        _signals.pending = number
    elif not _ends_already():
        raise _interrupted(number)


def _ends_already() -> bool:
    """Whether what the main thread does now is done because it was interrupted."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def _interrupted(number: int) -> Interrupted:
    return Interrupted(number, f"stopped by {signal.Signals(number).name}")


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals wait until the end of this short section. Sections do not nest.

    Where the section fails, its error ends the run anyway, and a signal that came meanwhile is let go.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.deferring = True
    try:
        yield
    finally:
        _signals.deferring = False
        number, _signals.pending = _signals.pending, None
    if number is not None:
        raise _interrupted(number)


@contextlib.contextmanager
def unhindered() -> Iterator[None]:
    """Signals during the cleaning up after a failure are let go: it is short, and ends the run anyway."""
    try:
        with deferred():
            yield
    except Interrupted:
        return


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


def exists(path: Path) -> bool:
    """Whether anything is there, a dangling link too. Unlike os.path.lexists, an I/O error is no `False`."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def absolute(path: Path) -> Path:
    """The path with its parent's links and `..` resolved, its own name left alone."""
    path = Path(os.path.abspath(path)) if path.name in ("", "..") else path
    return Path(os.path.realpath(path.parent), path.name)


def path_text(path: Path) -> str:
    return shown(os.fspath(path))
