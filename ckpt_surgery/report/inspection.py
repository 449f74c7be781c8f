"""What `inspect` found, as a JSON document."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ckpt_surgery.core.documents import JSON_SCHEMA, key_json, spec_json
from ckpt_surgery.core.history import History
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.shardings import sharding_summary
from ckpt_surgery.report.histograms import Histogram
from ckpt_surgery.report.history import history_json
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.scalars import Values
from ckpt_surgery.report.tree import Subtree, Total, dtype_totals, parameters
from ckpt_surgery.report.unusual import Unusual


class Inspected(Protocol):
    """What the document is made from."""

    @property
    def path(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def step(self) -> int | None: ...
    @property
    def item(self) -> str | None: ...
    @property
    def choices(self) -> Choices: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def leaves(self) -> Sequence[Leaf]: ...
    @property
    def others(self) -> int: ...
    @property
    def values(self) -> Values: ...
    @property
    def subtrees(self) -> Sequence[Subtree]: ...
    @property
    def statistics(self) -> Mapping[str, Statistics | Unread] | None: ...
    @property
    def stored_types(self) -> Mapping[str, str]: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def history(self) -> History | None: ...
    @property
    def unusual(self) -> Sequence[Unusual] | None: ...


def inspect_json(found: Inspected) -> dict[str, Any]:
    """The JSON document of `inspect`: every leaf, sizes in bytes.

    A leaf that could not be read has the reason as `unread`, in place of numbers. `unusual` is null where no
    statistics were asked for.
    """
    return {
        "schema": JSON_SCHEMA,
        "path": found.path,
        "format": found.format,
        "step": found.step,
        "item": found.item,
        "steps": list(found.choices.steps),
        "unfinished_steps": list(found.choices.unfinished),
        "items": list(found.choices.items),
        "bytes": sum(leaf.nbytes for leaf in found.leaves),
        "parameters": parameters(found.leaves),
        "others": found.others,
        "metadata": dict(found.metadata),
        "dtypes": {name: _total_json(total) for name, total in dtype_totals(found.leaves).items()},
        "subtrees": [{"key": one.key, **_total_json(one.total)} for one in found.subtrees],
        "leaves": [_leaf_json(leaf, found) for leaf in found.leaves],
        "unusual": None if found.unusual is None else list(map(_unusual_json, found.unusual)),
        "warnings": list(found.warnings),
        **({} if found.history is None else {"history": history_json(found.history)}),
    }


def _total_json(total: Total) -> dict[str, int]:
    return {"leaves": total.leaves, "elements": total.elements, "bytes": total.nbytes}


def _unusual_json(one: Unusual) -> dict[str, Any]:
    return {"what": one.what, "keys": [leaf.key.text for leaf in one.leaves]}


def _leaf_json(leaf: Leaf, found: Inspected) -> dict[str, Any]:
    return {
        **key_json(leaf.key),
        **spec_json(leaf),
        "bytes": leaf.nbytes,
        "kind": leaf.kind.value,
        **({} if leaf.type is None else {"type": leaf.type}),
        "chunks": None if leaf.manifest is None else list(leaf.manifest.chunk_shape),
        **_stored_json(leaf),
        "sharding": None if leaf.sharding is None else sharding_summary(leaf.sharding),
        **_value_json(leaf, found.values),
        **_statistics_json((found.statistics or {}).get(leaf.key.text)),
    }


def _stored_json(leaf: Leaf) -> dict[str, Any]:
    """The quantized type that an array is stored in, and why it is not read where that is so."""
    if leaf.stored_type is None:
        return {}
    why = {} if leaf.unreadable is None else {"unread": f"it {leaf.unreadable.why}"}
    return {"stored_as": leaf.stored_type, **why}


def _value_json(leaf: Leaf, values: Values) -> dict[str, Any]:
    """The value of a string, and of a number that was read."""
    if leaf.string is not None:
        return {"value": leaf.string}
    value = values.get(leaf.key.text)
    if value is None:
        return {}
    return {"unread": value.why} if isinstance(value, Unread) else {"value": value}


def _statistics_json(stats: Statistics | Unread | None) -> dict[str, Any]:
    if stats is None:
        return {}
    if isinstance(stats, Unread):
        return {"unread": stats.why}
    numbers = {"min": stats.minimum, "max": stats.maximum, "mean": stats.mean, "std": stats.std}
    counts = {"nan": stats.nan, "inf": stats.inf}
    return {**numbers, **counts, "histogram": _histogram_json(stats.histogram)}


def _histogram_json(found: Histogram) -> dict[str, Any]:
    """Bin i holds the values from `start + i * width` to `start + (i + 1) * width`."""
    return {"start": found.start, "width": found.width, "counts": list(found.counts)}
