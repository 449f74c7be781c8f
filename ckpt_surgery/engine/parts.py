"""The directory of parts beside a destination, where the machines of a sharded run leave their results.

`.NAME.ckpt-surgery-parts/` holds
- `head.json`: which plan is carried out, and by how many shards; whoever comes first writes it;
- `plan-RUN.json`: that plan, as it was saved;
- `RUN-I.done.json`: what the first finished attempt at shard I has written;
- `result-RUN/`: what the sinks of all attempts write into, on a file system; `complete/` once it is
  published. In an object store, data is put below the destination's own prefix from the beginning.

An attempt writes under a name that nobody else has, or the same bytes at the same place as another attempt,
and is not looked at unless its shard names it. What has the name of another run counts for nothing: a late
attempt at parts that were removed can write such, and so can a process that others were faster than.
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
from ckpt_surgery.engine.staging.leftovers import remove_tree
from ckpt_surgery.engine.staging.syncing import (
    interruptibly,
    rename_atomically,
    sync_directory,
    sync_file,
    sync_tree,
)
from ckpt_surgery.engine.tasks import FinishedTask, ShardProgress, results_of, task_json
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists
from ckpt_surgery.storage.store import ConditionFailed, Only, store_of

T = TypeVar("T")
HEAD = "head.json"
RESULT = "result"
COMPLETE = "complete"
ANEW = "Remove the directory of parts, and run all shards again."


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
        self.complete = self.directory / COMPLETE
        """Name of the directory that sinks write into once `take` has renamed it."""

    def work(self, head: Head) -> str:
        """Path or URL of the directory that sinks write into."""
        return os.path.join(self.place, f"{RESULT}-{head.run}")

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Start the shards, unless another process was faster.

        `plan` is the document of the plan. `create` is called once, with the directory that sinks write into,
        to make in it what all workers share.
        """
        work = Path(self.work(head))
        try:
            with storage_errors(work):
                self.directory.mkdir(exist_ok=True)
                os.mkdir(work)
            create(os.fspath(work))
            with storage_errors(work):
                interruptibly(partial(sync_tree, work))
                sync_directory(self.directory.parent)
            self.put(head.plan, plan)
            self.put(HEAD, head_bytes(head))
        finally:
            if self.read(HEAD) != head_bytes(head):
                shutil.rmtree(work, ignore_errors=True)
                with contextlib.suppress(OSError):
                    (self.directory / head.plan).unlink(missing_ok=True)
                    os.rmdir(self.directory)

    def read(self, name: str) -> bytes | None:
        """Read a document; None if it does not exist."""
        with storage_errors(self.directory), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return (self.directory / name).read_bytes()
        return None

    def put(self, name: str, document: bytes) -> bool:
        """Add a document durably; False if its name is taken."""
        path = self.directory / name
        unfinished = path.with_name(f"{name}.{secrets.token_hex(8)}")
        with storage_errors(path):
            try:
                with open(unfinished, "xb") as file:
                    file.write(document)
                sync_file(unfinished)
                rename_atomically(unfinished, path)
            except FileExistsError:
                return False
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished)
            sync_directory(self.directory)
        return True

    def sync(self, written: Iterable[str]) -> None:
        """Flush files that sinks wrote, and their directories, to stable storage, and nothing else there.

        Other shards write there at the same time, and their files come and go.
        """
        paths = sorted(set(map(Path, written)))
        above = {parent for path in paths for parent in path.parents if self.directory in parent.parents}

        def sync() -> None:
            for path in paths:
                (sync_tree if path.is_dir() else sync_file)(path)
            for directory in sorted(above, reverse=True):
                sync_directory(directory)

        with storage_errors(self.directory):
            interruptibly(sync)

    def take(self, head: Head) -> None:
        """Move what all shards wrote out of reach of redundant attempts that are still writing."""
        with storage_errors(self.complete):
            if not exists(self.complete) and exists(Path(self.work(head))):
                os.rename(self.work(head), self.complete)

    def clear(self) -> None:
        """Remove the directory, and those that killed processes were removing."""
        with storage_errors(self.directory):
            if exists(self.directory):
                os.rename(self.directory, f"{self.place}-{secrets.token_hex(8)}")
            for path in self.directory.parent.glob(f"{glob.escape(self.directory.name)}-*"):
                remove_tree(path)


class ObjectParts:
    """Parts in an object store: documents are objects that are created only if none has their name.

    Its attributes and methods are those of `LocalParts`.
    """

    def __init__(self, url: str):
        parent, _, name = url.rpartition("/")
        self.place = f"{parent}/.{name}.ckpt-surgery-parts"
        self._url = url
        self._store, self._prefix = store_of(self.place)

    def work(self, head: Head) -> str:
        """The URL of the destination itself."""
        return self._url

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Put the plan under a unique name, and then the head."""
        create(self.work(head))
        self.put(head.plan, plan)
        self.put(HEAD, head_bytes(head))  # if another was faster, `clear` removes the plan with its parts

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        stat = self._store.stat(f"{self._prefix}/{name}")
        return None if stat is None else self._store.read(f"{self._prefix}/{name}")

    def put(self, name: str, document: bytes) -> bool:
        """Create an object; False if there is one already."""
        with contextlib.suppress(ConditionFailed):
            self._store.put(f"{self._prefix}/{name}", document, Only.ABSENT)
            return True
        return False

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


def done_name(head: Head, index: int) -> str:
    """Name of the document that records a shard's progress."""
    return f"{head.run}-{index}.done.json"


def part_of(parts: Parts, head: Head, index: int) -> ShardProgress | None:
    """Read the progress of a finished shard; None if it is unfinished. Raises SourceError for damage."""
    shard = _document(parts, done_name(head, index), tuple[str, tuple[FinishedTask, ...]])
    return None if shard is None else ShardProgress(shard[0], results_of(shard[1]))


def missing(parts: Parts, head: Head) -> list[int]:
    """Numbers of the unfinished shards."""
    return [index for index in range(head.count) if parts.read(done_name(head, index)) is None]


def put_part(parts: Parts, head: Head, index: int, part: ShardProgress) -> bool:
    """Add the progress of a finished shard; False if another attempt was faster."""
    tasks = ", ".join(task_json(number, done) for number, done in part.done.items())
    return parts.put(done_name(head, index), f"[{json.dumps(part.worker)}, [{tasks}]]".encode("ascii"))


def _document(parts: Parts, name: str, form: type[T]) -> T | None:
    """Read a document of this form; None if it does not exist. Raises SourceError for damage."""
    text = parts.read(name)
    try:
        return None if text is None else msgspec.convert(json.loads(text), form)
    except ValueError as error:
        problem = f"{shown(f'{parts.place}/{name}')} is damaged ({type(error).__name__})"
        raise SourceError(problem, hint=ANEW) from error
