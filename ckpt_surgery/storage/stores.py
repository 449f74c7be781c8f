"""Which store a URL lies in."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ckpt_surgery.core import urls
from ckpt_surgery.storage.store import Store

_REGISTERED: dict[str, Callable[[str], Store]] = {}
"""What opens the store at a root, by scheme, for schemes besides those of the object stores."""


def store_of(url: str) -> tuple[Store, str]:
    """The store that a URL lies in, and the URL's name in it. Raises UsageError, StorageError."""
    root, name = urls.split(url)
    return _REGISTERED.get(urls.scheme_of(root) or "", _opened)(root), name


@functools.lru_cache(maxsize=64)
def _opened(root: str) -> Store:
    from ckpt_surgery.storage.remote import open_store  # imports what only object stores need

    return open_store(root)


@contextmanager
def registered(scheme: str, opener: Callable[[str], Store]) -> Iterator[None]:
    """Within this context, URLs of this scheme open the store that `opener` gives for their root."""
    before = _REGISTERED.get(scheme)
    _REGISTERED[scheme] = functools.cache(opener)
    urls.REGISTERED.add(scheme)
    try:
        yield
    finally:
        if before is not None:
            _REGISTERED[scheme] = before
        else:
            del _REGISTERED[scheme]
            urls.REGISTERED.discard(scheme)
