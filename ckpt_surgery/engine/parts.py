"""The directory of parts beside a destination, where the machines of a sharded run leave their results.

`.NAME.ckpt-surgery-parts/` holds
- `head.json`: which plan is carried out, and by how many shards; whoever comes first writes it;
- `plan-RUN.json`: that plan, as it was saved;
- `I.done.json`: what the first finished attempt at shard I has written;
- `result/`: what the sinks of all attempts write into, on a file system; `complete/` once it is published.
  In an object store, data is put below the destination's own prefix from the beginning.

An attempt writes under a name that nobody else has, or the same bytes at the same place as another attempt,
and is not looked at unless its shard names it.
"""

import contextlib
import glob
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.journal import FinishedTask, finished_json
from ckpt_surgery.engine.staging.renaming import rename_atomically
from ckpt_surgery.engine.staging.syncing import interruptibly, sync_directory, sync_file, sync_tree
from ckpt_surgery.engine.tasks import ShardProgress
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists
from ckpt_surgery.storage.store import ConditionFailed, Only, store_of

T = TypeVar("T")
HEAD = "head.json"
RESULT = "result"
COMPLETE = "complete"


@dataclass(frozen=True)
class Head:
    """Header shared by all shards of one destination: identity, number of shards, the plan's name."""

    run: str
    """Random token of these parts."""
    identity: Mapping[str, str]
    """Version of the program, and digests of the plan and of its sources."""
    count: int
    """Number of shards."""
    replaces: Replacement | None
    """The checked state of the checkpoint that is replaced; None: nothing may be at the destination."""
    step_only: bool
    """True if the destination is one step of an existing CheckpointManager directory."""
    memory: int
    """Budget in bytes of the process that started the shards; the plan is cut for it on a cluster."""
    record_bytes: int
    """Bytes reserved for the record in formats that reserve some. It names paths of sources, and shards must
    come to the same offsets, even if sources are mounted at another place."""

    @property
    def plan(self) -> str:
        """The name of the document of the plan."""
        return f"plan-{self.run}.json"


# --- where they lie ---------------------------------------------------------------------------------------


class LocalParts:
    """Parts on a file system that all machines see. Its methods raise StorageError.

    Documents are files that are renamed into place once they are whole: the first one under a name wins.
    """

    def __init__(self, destination: Path):
        destination = absolute(destination)
        self.directory = destination.with_name(f".{destination.name}.ckpt-surgery-parts")
        self.place = os.fspath(self.directory)
        """Path or URL of the directory of parts, for messages."""
        self.work = os.path.join(self.place, RESULT)
        """Path or URL of the directory that sinks write into."""
        self.complete = self.directory / COMPLETE
        """Name of `work` once `take` has renamed it."""

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Create the directory under a temporary name and rename it once it is complete.

        Nothing happens if another process was faster. `plan` is the document of the plan. `create` is called
        once, with the directory that will be `work`, to make in it what all workers share.
        """
        temporary = self._other_name()
        try:
            with storage_errors(temporary):
                os.mkdir(temporary)
                os.mkdir(temporary / RESULT)
                _write(temporary / head.plan, plan)
                _write(temporary / HEAD, head_bytes(head))
            create(os.fspath(temporary / RESULT))
            with storage_errors(self.directory):
                interruptibly(partial(sync_tree, temporary))
                self._remove_headless()
                with contextlib.suppress(FileExistsError):
                    _rename(temporary, self.directory)
                sync_directory(self.directory.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _other_name(self) -> Path:
        """New temporary name beside the directory; `clear` removes what has one."""
        return self.directory.with_name(f"{self.directory.name}-{secrets.token_hex(8)}")

    def _remove_headless(self) -> None:
        """Remove a directory without a head, which a late attempt re-created by writing after `clear`."""
        if exists(self.directory / HEAD) or not self.directory.is_dir():
            return
        aside = self._other_name()
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.directory, aside)
            if exists(aside / HEAD):  # another process began in between
                _rename(aside, self.directory)
            shutil.rmtree(aside, ignore_errors=True)

    def read(self, name: str) -> bytes | None:
        """Read a document; None if it does not exist."""
        path = self.directory / name
        with storage_errors(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, name: str, document: bytes) -> bool:
        """Add a document durably; False if its name is taken."""
        path = self.directory / name
        unfinished = path.with_name(f"{name}.{secrets.token_hex(8)}")
        with storage_errors(path):
            try:
                _write(unfinished, document)
                _rename(unfinished, path)
            except FileExistsError:
                return False
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished)
            sync_directory(self.directory)
        return True

    def sync(self, written: Iterable[str]) -> None:
        """Flush files and directories below `work` to stable storage, and nothing else there.

        Other shards write into `work` at the same time, and their files come and go.
        """
        paths = sorted(set(map(Path, written)))
        above = {parent for path in paths for parent in path.parents if parent.is_relative_to(self.work)}

        def sync() -> None:
            for path in paths:
                (sync_tree if path.is_dir() else sync_file)(path)
            for directory in sorted(above, reverse=True):
                sync_directory(directory)

        with storage_errors(self.directory):
            interruptibly(sync)

    def take(self) -> None:
        """Move what all shards wrote out of reach of redundant attempts that are still writing."""
        with storage_errors(self.complete):
            if not exists(self.complete) and exists(Path(self.work)):
                os.rename(self.work, self.complete)

    def clear(self) -> None:
        """Remove the directory, and temporary ones that killed processes left."""
        with storage_errors(self.directory):
            aside = self._other_name()
            if exists(self.directory):
                os.rename(self.directory, aside)
            for path in self.directory.parent.glob(f"{glob.escape(self.directory.name)}-*"):
                shutil.rmtree(path, ignore_errors=True)  # another process may be removing it, too
                if exists(path):
                    shutil.rmtree(path)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
    sync_file(path)


def _rename(source: Path, target: Path) -> None:
    """Rename if the target does not exist. Raises FileExistsError, OSError."""
    try:
        rename_atomically(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if not source.is_dir():
            raise
        try:
            os.rename(source, target)  # fails where somebody was faster: a directory of parts is never empty
        except OSError:
            raise FileExistsError(str(target)) if exists(target) else error from None


class ObjectParts:
    """Parts in an object store: documents are objects that are created only if none has their name.

    Its attributes and methods are those of `LocalParts`.
    """

    def __init__(self, url: str):
        parent, _, name = url.rpartition("/")
        self.place = f"{parent}/.{name}.ckpt-surgery-parts"
        self.work = url
        self._store, self._prefix = store_of(self.place)

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Put the plan under a unique name, and then the head."""
        create(self.work)
        self.put(head.plan, plan)
        if not self.put(HEAD, head_bytes(head)):
            self._store.delete([f"{self._prefix}/{head.plan}"])

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        stat = self._store.stat(f"{self._prefix}/{name}")
        return None if stat is None else self._store.read(f"{self._prefix}/{name}")

    def put(self, name: str, document: bytes) -> bool:
        """Create an object; False if there is one already."""
        try:
            self._store.put(f"{self._prefix}/{name}", document, Only.ABSENT)
        except ConditionFailed:
            return False
        return True

    def sync(self, written: Iterable[str]) -> None:
        """Do nothing: objects are durable once put."""

    def clear(self) -> None:
        """Remove the head, and then everything else."""
        self._store.delete([f"{self._prefix}/{HEAD}"])
        self._store.delete(sorted(self._store.walk(f"{self._prefix}/")))


Parts = LocalParts | ObjectParts

# --- their documents --------------------------------------------------------------------------------------


def head_of(parts: Parts) -> Head | None:
    """Read the head; None if no shard was started.

    Raises SourceError if that is damaged, StorageError.
    """
    return _document(parts, HEAD, Head)


def head_bytes(head: Head) -> bytes:
    """The head as a document."""
    return json.dumps(asdict(head)).encode("ascii")


def done_name(index: int) -> str:
    """Name of the document that records a shard's progress."""
    return f"{index}.done.json"


def part_of(parts: Parts, index: int) -> ShardProgress | None:
    """Read the progress of a finished shard; None if it is unfinished. Raises SourceError for damage."""
    shard = _document(parts, done_name(index), tuple[str, tuple[FinishedTask, ...]])
    return None if shard is None else ShardProgress(shard[0], {one.task: one.result for one in shard[1]})


def missing(parts: Parts, head: Head) -> list[int]:
    """Numbers of the unfinished shards."""
    return [index for index in range(head.count) if parts.read(done_name(index)) is None]


def part_bytes(part: ShardProgress) -> bytes:
    """The progress of a finished shard as a document."""
    tasks = [finished_json(number, done) for number, done in part.done.items()]
    return json.dumps([part.worker, tasks]).encode("ascii")


def _document(parts: Parts, name: str, form: type[T]) -> T | None:
    """Read a document of this form; None if it does not exist. Raises SourceError for damage."""
    text = parts.read(name)
    if text is None:
        return None
    try:
        return msgspec.convert(json.loads(text), form)
    except ValueError as error:
        raise SourceError(
            f"{shown(f'{parts.place}/{name}')} is damaged ({type(error).__name__})",
            hint="Remove the directory, and run all shards again.",
        ) from error
