"""Checks before anything is written to an object store: the place of the destination, and what is there."""

from collections.abc import Iterable, Sequence

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import DestinationError, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.destinations import Publication
from ckpt_surgery.engine.staging import object_leftovers as leftovers
from ckpt_surgery.engine.staging.object_lock import lock_name
from ckpt_surgery.existing_items import (
    exists_already,
    item_replacement,
    whole_replacement,
    writes_one_item,
)
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.replacing import check_one
from ckpt_surgery.storage.listing import digest, exists, is_directory, walk
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.stores import store_of
from ckpt_surgery.storage.views import forget


def check_apart(inputs: Sequence[str], url: str) -> None:
    """Refuse a destination that is a source, lies in one, or holds one.

    Raises UsageError, and DestinationError where a source would be replaced.
    """
    for path in filter(urls.is_url, inputs):
        if path == url:
            problem = f"{shown(url)}: the destination is the source itself"
        elif url.startswith(f"{path}/"):
            problem = f"{shown(url)}: the destination lies inside the source {shown(path)}"
        elif path.startswith(f"{url}/"):
            raise DestinationError(
                f"{shown(url)}: is not replaced, for it holds the source {shown(path)}",
                hint="Choose another destination.",
            )
        else:
            continue
        raise UsageError(problem, hint="Choose another destination; sources are never written to.")


def check_files(files: Iterable[str], url: str) -> None:
    """Refuse a destination that is one of `files`, the files of all sources. Raises UsageError."""
    if url in set(files):
        raise UsageError(
            f"{shown(url)}: the destination is a file of a source",
            hint="Choose another destination; sources are never written to.",
        )


def state_of(url: str, run: str = "") -> str | None:
    """A text that changes whenever an object at or below a URL changes; None where there is none.

    `run`: token of shards whose objects do not count. Asks the store anew. Raises StorageError.
    """
    forget()
    if not exists(url):
        return None
    found = walk(url, url) if is_directory(url) else {"": stat_file(url)}
    return digest({name: stat for name, stat in found.items() if not (run and is_of_shards(name, run))})


def is_of_shards(name: str, run: str) -> bool:
    """Whether an object below a destination was put by a shard: the names of its workers have the token."""
    return f"_{run}_" in name


def replaceable(url: str) -> str | None:
    """The state of what a new checkpoint may replace at a URL; None: nothing is there.

    What ended runs left does not count, and is not looked at where one had begun to publish: the next run
    completes that first. Raises DestinationError where anything else is there but one whole checkpoint, with
    what it is instead.
    """
    state = state_of(url)
    found = leftovers.examine(*store_of(url))
    if any(attempt.switching for attempt in found.attempts):
        return state or ""
    if state is None or (is_directory(url) and not found.others):
        return None
    check_one(url, {name for attempt in found.attempts for name in attempt.objects})
    return state


def replacement(where: Publication, overwrite: bool) -> Replacement | None:
    """What is at a URL, and what of it a run replaces; None: nothing. Raises DestinationError.

    As `existing_items.replacement`, except that nothing is refused here where a run has begun to publish:
    the next run completes that first.
    """
    url = where.place
    state, found = state_of(url), leftovers.examine(*store_of(url))
    begun = any(attempt.switching for attempt in found.attempts)
    if writes_one_item(where):
        return None if state is None and not begun else _item_replacement(where, overwrite, state or "")
    if overwrite and begun:
        return Replacement(url, state or "")
    if overwrite:
        state = replaceable(url)
        return None if state is None else whole_replacement(where, url, state)
    if state is None or not found.others or found.attempts or _is_locked(url):
        return None  # the run itself tidies up what ended runs left, and then looks at what is there
    if error := exists_already(where):
        raise error
    return None


def _is_locked(url: str) -> bool:
    store, name = store_of(url)
    return store.stat(lock_name(name)) is not None


def _item_replacement(where: Publication, overwrite: bool, state: str) -> Replacement:
    """What one item replaces in a step. What ended runs left there does not count."""
    url, item = where.place, str(where.item)
    found = leftovers.examine(*store_of(url))
    items = sorted({name.partition("/")[0] for name in found.others if "/" in name})
    if any(attempt.switching for attempt in found.attempts):
        stays = tuple(name for name in items if name != item)
        return Replacement(url, state, one_item=True, items=(item,) if overwrite else (), stays=stays)
    left = {name for attempt in found.attempts for name in attempt.objects}
    below = {name.removeprefix(f"{item}/") for name in left if name.startswith(f"{item}/")}
    return item_replacement(where, url, items, overwrite, state, below)


def check_directory(url: str) -> None:
    """Refuse to put a checkpoint of several objects below an object. Raises DestinationError."""
    store, name = store_of(url)
    if store.stat(name) is not None:
        raise DestinationError(
            f"{shown(url)}: is an object, and a checkpoint of several objects does not replace it",
            hint="Choose another destination, or delete it.",
        )


def check_same(url: str, state: str | None, run: str = "") -> None:
    """Refuse to replace what is not in the state in which it was checked; `run` is `state_of`'s.

    Raises DestinationError.
    """
    if state is not None and state_of(url, run) not in (None, state):
        raise DestinationError(
            f"{shown(url)}: changed during this run, so it was not replaced",
            hint="Look at what is there now; then run again.",
        )
