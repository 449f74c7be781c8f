"""Runs without an engine that write a checkpoint to a store, and stores that fail while they do."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ckpt_surgery.engine.staging import life
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.storage.store import store_of
from tests.support.ended_runs import IDENTITY
from tests.support.generations import replaced_at
from tests.support.key_value import KeyValueStore

MARKER = "commit_success.txt"


class Dying(KeyValueStore):
    """A store whose process ends before, or right after, a request that changes or reads something."""

    def __init__(self, inner: KeyValueStore, last: int, after: bool, end: Callable[[], None]):
        super().__init__(inner.url, inner._directory)
        self._left = last
        self._after = after
        self._end = end
        self._counting = threading.Lock()

    @contextmanager
    def _request(self, *what: str) -> Iterator[None]:
        with self._counting:
            self._left -= 1
            left = self._left
        if left < 0 or (left == 0 and not self._after):
            self._end()
        yield
        if left == 0:
            self._end()


def staged(
    url: str,
    identity: Mapping[str, str] = IDENTITY,
    resume: bool = False,
    overwrite: bool = False,
    shards: str = "",
) -> AbstractContextManager[StoreStage]:
    """A run's stage. With `overwrite`, what is there when this is called may be replaced."""
    return life.staged(StoreStage(url, identity, replaced_at(url, overwrite), shards=shards), resume)


def write(staging: StoreStage, value: str, data: int = 2) -> None:
    """Write what a sink would: data, and then the documents that name it."""
    draft = store_of(staging.work)[0]
    names = [f"d/{value}{number}" for number in range(data)]
    for name in [*names, "shared/0"]:
        if draft.stat(name) is None:
            draft.put(name, value.encode())
    draft.finishing = True  # type: ignore[attr-defined]
    draft.put(MARKER, b"committed")
    draft.put("manifest.ocdbt", f"{value}:{','.join(names)}".encode())
    draft.put("_METADATA", value.encode())
    draft.put(f"d/node-{value}", value.encode())


def run(url: str, value: str, **options: Any) -> StoreStage:
    """A whole run; returns its stage."""
    with staged(url, **options) as staging:
        write(staging, value)
        staging.publish()
    return staging


def at(url: str) -> dict[str, bytes]:
    """Every object below a URL, by its name there, and beside it under names that begin with `.`."""
    store, name = store_of(url)
    found = {key: store.read(key) for key in store.walk()}
    below = {key[len(name) + 1 :]: data for key, data in found.items() if key.startswith(f"{name}/")}
    parent = name.rpartition("/")[0]
    return below | {key: data for key, data in found.items() if key.startswith(f"{parent}/.".lstrip("/"))}


def objects(url: str) -> dict[str, bytes]:
    """Every object of the store of a URL, by its name below the parent of that URL."""
    store, name = store_of(url)
    parent = f"{name.rpartition('/')[0]}/".lstrip("/")
    return {key.removeprefix(parent): store.read(key) for key in store.walk()}


def whole(value: str) -> dict[str, bytes]:
    """What a run leaves, without the text of the marker."""
    data = {f"d/{value}0", f"d/{value}1", "shared/0", f"d/node-{value}", "_METADATA"}
    manifest = f"{value}:d/{value}0,d/{value}1".encode()
    return {name: value.encode() for name in data} | {"manifest.ocdbt": manifest}


def state(url: str) -> str:
    """`uncommitted`, or the value of the checkpoint that is there complete and committed.

    Fails where a marker stands over anything but one whole checkpoint.
    """
    found = at(url)
    if MARKER not in found:
        return "uncommitted"
    value = found["_METADATA"].decode()
    for name, data in whole(value).items():
        assert found[name] == data, f"mixed: {name} is {found[name]!r} in {value}"
    return value
