"""Opens what is given as a checkpoint: a path, or a pytree in memory. The one place that tells them apart."""

from collections.abc import Iterable

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.live.source import FORMAT, TreeSource
from ckpt_surgery.live.tree import is_abstract, live_tree
from ckpt_surgery.requests import InMemory

TREE = "(tree)"
"""What messages and reports call a tree in memory."""


def opened(
    given: str | InMemory,
    format: str | None = None,
    step: int | None = None,
    item: str | None = None,
    called: str = TREE,
) -> Source:
    """Open a checkpoint, or list a tree, which messages name `called`.

    Raises SourceError for a checkpoint that cannot be opened, UsageError for a tree with a step, an item or a
    format, and for one with two leaves of the same name.
    """
    if isinstance(given, str):
        return formats.open_source(given, format, step, item)
    chosen = {"step": step, "item": item, "format": format}
    for name, value in chosen.items():
        if value is not None:
            raise UsageError(f"{called} is a tree in memory: it has no {name}, and `{name}` is {value!r}")
    return TreeSource(live_tree(given.tree), called)


def in_memory(source: Source) -> bool:
    """Whether a source is a tree in memory: it has neither a path nor files."""
    return source.format == FORMAT


def on_disk(sources: Iterable[Source]) -> list[Source]:
    """The sources that are checkpoints with a path."""
    return [source for source in sources if not in_memory(source)]


def without_values(source: Source) -> frozenset[str]:
    """Texts of the keys of a source's leaves that have shape and dtype alone."""
    if not isinstance(source, TreeSource):
        return frozenset()
    return frozenset(text for text, value in source.tree.values.items() if is_abstract(value))
