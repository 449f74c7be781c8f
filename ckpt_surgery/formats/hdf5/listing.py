"""The datasets of an HDF5 file by their key paths: by hard links alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import SEPARATOR, Key, natural_order
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.hdf5.datasets import MERGE, FileSpan, describe_dataset
from ckpt_surgery.formats.hdf5.library import LIBRARY_ERRORS, library_text
from ckpt_surgery.formats.hdf5.texts import Texts
from ckpt_surgery.storage.failures import DAMAGED, damaged, with_path

MOST_LEVELS = 256
"""Groups nested deeper than this are refused."""
HARD_LINK = (
    "Make it a hard link, with `file = h5py.File(PATH, 'r+')`: `x = file[{name!r}]; del file[{name!r}]; "
    "file[{name!r}] = x`. h5repack keeps such links."
)

Names = tuple[str, ...]


@dataclass
class _Found:
    """Datasets and problems that a walk has found so far."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    groups: dict[int, Names] = field(default_factory=dict)
    """The groups by their addresses in the file."""


def listed(file: Any, room: FileSpan, texts: Texts) -> dict[str, Leaf]:
    """The leaf of every dataset of h5py's `FileID` by the text of its key, numbers in names by value.

    Raises SourceError with the key where something cannot be, and what h5py raises.
    """
    from h5py import h5g

    found = _Found()
    stack: list[tuple[Any, Names]] = [(h5g.open(file, b"/"), ())]
    while stack:
        group, names = stack.pop()
        for inner, below in _walk(group, names, found, room, texts):
            _check_group(inner, below, found)
            stack.append((inner, below))
    return {text: found.leaves[text] for text in sorted(found.leaves, key=natural_order)}


def _walk(
    group: Any, names: Names, found: _Found, room: FileSpan, texts: Texts
) -> Iterator[tuple[Any, Names]]:
    """Take in the links of one group; what is yielded are the groups in it."""
    from h5py import h5d, h5g, h5l, h5o

    links: list[bytes] = []
    group.links.iterate(links.append)
    for raw in links:
        below = (*names, _name(raw, names))
        kind = group.links.get_info(raw).type
        if kind == h5l.TYPE_SOFT:
            hint = HARD_LINK.format(name=SEPARATOR.join(below)[:200])
            raise _odd(below, "is a soft link, which is not read", hint)
        if kind != h5l.TYPE_HARD:
            raise _odd(below, "is a link to another file", MERGE)
        with _about(below):
            inner = h5o.open(group, raw)
            if isinstance(inner, h5d.DatasetID):
                text = SEPARATOR.join(below)
                found.leaves[text] = describe_dataset(inner, Key.parse(text), room, texts)
        if isinstance(inner, h5g.GroupID):
            yield inner, below


@contextmanager
def _about(names: Names) -> Iterator[None]:
    """Put the key in front of what is wrong with a dataset, also where the library says it."""
    with with_path(_quoted(names)):
        try:
            yield
        except LIBRARY_ERRORS as error:
            raise damaged(library_text(error)) from error


def _check_group(group: Any, names: Names, found: _Found) -> None:
    """Raise SourceError for a group that is nested too deeply, and for one that has been found before."""
    from h5py import h5o

    if len(names) > MOST_LEVELS:
        raise _odd(names, f"lies in more than {MOST_LEVELS} groups")
    address = h5o.get_info(group).addr
    root = h5o.get_info(group, b"/").addr
    before = found.groups.setdefault(address, names) if address != root else ()
    if before != names:
        told = f"the same group as `{shown(SEPARATOR.join(before))}`" if before else "the root group"
        raise _odd(
            names, f"is {told}", "A group that is reached by two paths is not read; remove one of them."
        )


def _name(raw: bytes, names: Names) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        inside = SEPARATOR.join(names) or SEPARATOR
        raise SourceError(
            f"the name {raw[:200]!r} in `{shown(inside)}` is not valid UTF-8", hint="Rename it."
        ) from error


def _quoted(names: Names) -> str:
    text = SEPARATOR.join(names)
    return f"`{text if len(text) <= 200 else f'{text[:200]}…'}`"


def _odd(names: Names, what: str, hint: str = DAMAGED) -> SourceError:
    return damaged(f"{shown(_quoted(names))} {what}", hint)
