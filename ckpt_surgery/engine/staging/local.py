"""Write to a local file system: into a temporary directory beside the destination, published by one rename.

After all of it has reached the disk, one rename makes a directory, or one file, the destination.
"""

import contextlib
import math
import os
import stat
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, VerificationError, add_sentence
from ckpt_surgery.core.text import few, number_of, shown
from ckpt_surgery.engine.staging import leftovers
from ckpt_surgery.engine.staging.checks import check_same, lock_of
from ckpt_surgery.engine.staging.heartbeat import Lock
from ckpt_surgery.engine.staging.life import FileLines, Lines, Staging, still_there
from ckpt_surgery.engine.staging.locks import FileLock
from ckpt_surgery.engine.staging.syncing import (
    exchange,
    interruptibly,
    move,
    sync_directory,
    sync_file,
    sync_tree,
)
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists, path_text
from ckpt_surgery.storage.record_files import beside, put_record
from ckpt_surgery.system.signals import deferred


class DirectoryStage(Staging):
    """Stage in a temporary directory of this run."""

    def __init__(
        self,
        destination: Path,
        lock: Lock,
        one_file: bool,
        identity: Mapping[str, str],
        written: Path | None = None,
    ):
        """`destination`: the path that the directory is beside. With `one_file`, the file is published that
        is written under the destination's name, else the whole directory. `identity`: what the run does.
        `written`: a directory there with the work of others, which is theirs again after a failure."""
        self.destination = absolute(destination)
        self.lock = lock
        self.called = path_text(self.destination)
        self.one_file = one_file
        self.identity = identity
        self.directory = leftovers.directory_of(self.destination, lock.owner.run)
        """Holds the journals, and a record `NAME.ckpt_surgery.json`, if there is one."""
        self.tree = written or self.directory / leftovers.RESULT
        """The checkpoint is written into this directory; empty at first unless `resumed`."""
        self.output = self.tree / self.destination.name if one_file else self.tree
        """The file or directory that is renamed to the destination, or uploaded."""
        self.work, self.product = str(self.tree), str(self.output)
        self.record = self.directory / beside(self.destination).name
        """Path of the record that is published beside the destination."""
        self._begun = False

    def begin(self, resume: bool) -> None:
        """Take over a directory with finished tasks or create one, and remove all others.

        Puts back a checkpoint that another run moved aside. Raises PlanError, StorageError.
        """
        with storage_errors(self.destination):
            directories = leftovers.leftovers(self.destination)
            to_resume = self.choose(directories, resume)
            self.notices += tuple(leftovers.put_back(directories, self.destination))
            if to_resume is not None:
                leftovers.take_over(to_resume, self.directory, self.lock.owner, self.identity)
                directories.remove(to_resume)
            self.notices += tuple(leftovers.clear(directories, self.destination))
            if to_resume is None:
                leftovers.begin(self.directory, self.lock.owner, self.identity)
            self._begun = True

    def journal(self, worker: str) -> Lines:
        return FileLines(self.directory / f"journal-{worker}.jsonl")

    def put_beside(self, record: str) -> None:
        put_record(self.record, record)

    def kept_in(self) -> str | None:
        """The directory and, if it can be read, the number of finished tasks."""
        place = f"in {path_text(self.directory)}"
        with contextlib.suppress(OSError):
            count = sum(path.read_bytes().count(b"\n") for path in leftovers.journals(self.directory))
            return f"{place}: {number_of(count, 'finished task')}" if count else None
        return place

    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """Remove the temporary directory, unless another run took it over."""
        if keep:
            return []
        self._begun = False
        removal = partial(leftovers.remove, self.directory)
        try:
            # Some disks are slow, and somebody waits for the end of an interrupted run.
            if exists(self.directory) and not interruptibly(removal, 1.0 if quickly else math.inf):
                return [still_there(path_text(self.directory), "there is much to remove")]
        except OSError as error:
            return [still_there(path_text(self.directory), error)]
        return []


class DiskStage(DirectoryStage):
    """Stage in a temporary directory that one rename makes the destination."""

    def __init__(
        self,
        destination: Path,
        one_file: bool,
        identity: Mapping[str, str],
        replaces: Replacement | None,
        written: Path | None = None,
    ):
        """`replaces`: what is replaced, as it was checked; None: nothing may be there."""
        super().__init__(destination, FileLock(lock_of(absolute(destination))), one_file, identity, written)
        self._replaces = replaces
        self._made: os.stat_result | None = None
        """Status of the published file or directory, to recognize it at the destination."""

    def publish(self) -> None:
        """Flush everything to the disk, then rename it to the destination.

        An existing destination is refused, even one that was created during the run. What is replaced
        exchanges names with the new checkpoint in one step, and is removed when `staged` ends. If the system
        or the file system cannot exchange names, the old one is moved aside first. If the run dies before the
        new one is in place, the next run puts the old one back. The record is put in place after that.
        """
        if self._replaces is not None:
            with storage_errors(self.destination):
                check_same(self.destination, self._replaces)
        with storage_errors(self.directory):
            self._check_own()
            if self.one_file:  # anything else in the directory would be lost
                written, name = sorted(os.listdir(self.tree)), self.output.name
                if written != [name] or not stat.S_ISREG(os.lstat(self.output).st_mode):
                    others = few([other for other in written if other != name]) or "something else"
                    problem = f"{shown(name)} was to be written as one file; there is {others}"
                    raise VerificationError(problem)
            interruptibly(partial(sync_tree, self.tree))
            if exists(self.record):
                sync_file(self.record)
            self._made = os.lstat(self.output)
            for directory in {self.directory, self.tree.parent}:
                leftovers.announce(directory, self._made)
        with deferred(), storage_errors(self.destination):
            self.lock.confirm()
            self._check_own()  # a lock that is made anew may have been another run's meanwhile
            put_in_place(self.output, self.destination, self.directory, self._replaces is not None)
            self.published = True
            record = beside(self.destination)
            try:
                if exists(self.record):
                    os.rename(self.record, record)
                    sync_directory(self.destination.parent)
            except OSError as error:
                why = error.strerror or error
                self.note_left(f"its record {path_text(record)} could not be written ({why})")

    def _check_own(self) -> None:
        """Refuse to publish if another run, which held the lock meanwhile, took the directory over."""
        if not exists(self.directory):
            raise DestinationError(self._loss, hint=self.lock.loss)

    @property
    def _loss(self) -> str:
        return f"{path_text(self.directory)} was taken over or removed during this run"

    def report(self, failure: BaseException) -> None:
        """Add the state of the destination; a rename that failed may still have been carried out."""
        ours = self._made
        try:
            there = os.lstat(self.destination) if exists(self.destination) else None
            lost = self._begun and not exists(self.directory)
        except OSError as error:
            add_sentence(failure, f"{self.called} cannot be examined ({error.strerror})")
            return
        if ours is not None and there is not None and os.path.samestat(ours, there):
            self.published = True
        elif lost and not isinstance(failure, DestinationError):
            add_sentence(failure, self._loss, hint=self.lock.loss)
        self.report_state(failure, there is not None)


def put_in_place(product: Path, destination: Path, directory: Path, overwrite: bool) -> None:
    """Durably rename the product to the destination, or exchange them. Undo it if that fails.

    A record beside the destination is the old checkpoint's: it goes first, so that no checkpoint is ever
    beside the record of another. Raises DestinationError, OSError.
    """
    swap = overwrite and exists(destination)

    def rename(source: Path, target: Path) -> None:
        if swap:
            exchange(product, destination, directory / leftovers.ASIDE)
        else:
            move(source, target)

    with _without_record(destination, directory):
        rename(product, destination)
        try:
            # Every directory whose entries have changed.
            for changed in dict.fromkeys((destination.parent, product.parent)):
                sync_directory(changed)
        except OSError:
            # What is not durable is not published; the old checkpoint has not been removed yet.
            rename(destination, product)
            raise


@contextlib.contextmanager
def _without_record(destination: Path, directory: Path) -> Iterator[None]:
    """Move the record beside the destination into the temporary directory; move it back after a failure."""
    record, moved = beside(destination), directory / leftovers.OLD_RECORD
    if not exists(record) or not stat.S_ISREG(os.lstat(record).st_mode):
        yield
        return
    os.rename(record, moved)
    try:
        sync_directory(destination.parent)
        yield
    except BaseException:
        os.rename(moved, record)
        raise
