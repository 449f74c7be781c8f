"""List the contents of a checkpoint, and compare two: `inspect` and `diff`."""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

from ckpt_surgery.core.arguments import CheckpointLike, SortBy, bytes_of, described, one_of
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.history import CONFIG, RECIPES, History, Origin, PastRecipe, history_entry
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import ProgressLike
from ckpt_surgery.core.protocols import Source, details_of
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.formats import known as formats
from ckpt_surgery.inputs import options
from ckpt_surgery.inputs.matching import check_matched, matching, selected
from ckpt_surgery.inputs.opening import in_memory, open_input, without_values
from ckpt_surgery.inputs.request import checkpoint_or_tree
from ckpt_surgery.inputs.warnings import (
    chosen_item_notes,
    disguised_warning,
    kept_as_integers,
    unread_weights,
)
from ckpt_surgery.report.differences import Difference, Holds, diff_trees
from ckpt_surgery.report.distances import Tolerance
from ckpt_surgery.report.inspection import Inspection
from ckpt_surgery.report.renames import renamed_leaves
from ckpt_surgery.report.tree import name_order
from ckpt_surgery.report.values import same_values, scalar_values, statistics, value_differences
from ckpt_surgery.storage.record_files import read_record_of, record_path
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system.progress_bars import reported
from ckpt_surgery.system.resources import default_memory


@described
def inspect(
    path: CheckpointLike,
    *,
    step: options.Step = None,
    item: options.Item = None,
    format: options.ReadFormat = None,
    match: options.Match = None,
    under: options.Under = None,
    depth: options.Levels = None,
    sort: options.Sort = None,
    stats: options.Stats = False,
    progress: ProgressLike = None,
) -> Inspection:
    """List the contents of a checkpoint or a pytree. Reads no arrays but a few scalars.

    `progress`: see `apply`. Raises SourceError or UsageError.
    """
    with reported(progress) as report, memory_errors("inspect the checkpoint"):
        forget()
        _check_view(depth, sort)
        source = open_input(checkpoint_or_tree(path), step=step, item=item, src_format=format)
        listed = source.leaves()
        leaves = tuple(selected(listed, match, under).values())
        if sort is not None:
            leaves = tuple(sorted(leaves, key=name_order if sort == "name" else lambda leaf: -leaf.nbytes))
        bare, disguised = without_values(source), len(details_of(source).disguised_bfloat16)
        notes = () if item is not None else chosen_item_notes([source])
        about = source.path, source.format, source.step, source.item, source.metadata, leaves
        return Inspection(
            *about,
            statistics(source, default_memory(), leaves, report) if stats else None,
            scalar_values(source, (leaf for leaf in leaves if leaf.key.text not in bare)),
            len(listed) - len(leaves),
            details_of(source).choices(),
            depth,
            sort,
            (*unread_weights([source]), *disguised_warning(disguised), *notes),
            None if in_memory(source) else history_of(source),
        )


def _check_view(depth: int | None, sort: str | None) -> None:
    """Refuse a depth or a sort order that does not exist. Raises UsageError."""
    if depth is not None and depth < 1:
        raise UsageError(f"`depth` is {depth}, and has to be 1 or more")
    if sort is not None:
        one_of("sort", sort, get_args(SortBy))


@described
def diff(
    a: CheckpointLike,
    b: CheckpointLike,
    *,
    step: options.Step = None,
    item: options.Item = None,
    uint16: options.Uint16 = None,
    match: options.Match = None,
    values: options.Values = False,
    rtol: options.Rtol = 0.0,
    atol: options.Atol = 0.0,
    memory: options.Memory = None,
    progress: ProgressLike = None,
) -> Difference:
    """Compare two checkpoints or pytrees: keys, containers, shapes and dtypes; with `values`, values too.

    NaN in the same place counts as the same. Values that cannot be compared are listed; the two then count as
    different. Leaves that both have under different names are `renamed`, with the evidence: the same stored
    bytes, with `values` equal values, without it perhaps only the names. `progress` (see `apply`) counts
    bytes read from A. Raises SourceError or UsageError.
    """
    with reported(progress) as report, memory_errors("compare the checkpoints"):
        forget()
        budget, tolerance = bytes_of("memory", memory) or default_memory(), _tolerance(values, rtol, atol)
        source_a, source_b = (_open_side(given, step, item, uint16) for given in (a, b))
        left, right = (matching(source.leaves(), match) for source in (source_a, source_b))
        check_matched(match, len(left) + len(right), {**source_a.leaves(), **source_b.leaves()})
        difference = diff_trees(left, right, _structure_of(source_a.format), _structure_of(source_b.format))
        same = None
        if values:
            bare = without_values(source_a) | without_values(source_b)
            compared, uncompared = value_differences(
                source_a, source_b, budget, bare, keys=left, tolerance=tolerance, progress=report
            )
            difference = replace(difference, values=compared, uncompared=uncompared, tolerance=tolerance)
            same = same_values(source_a, source_b, budget, bare)
        renamed = renamed_leaves(difference.only_a, difference.only_b, same)
        return replace(difference, renamed=renamed, warnings=kept_as_integers([source_a, source_b]))


def _tolerance(values: bool, rtol: float, atol: float) -> Tolerance:
    """Make the tolerance of a comparison. Raises UsageError."""
    given = {"rtol": rtol, "atol": atol}
    for name, tolerance in given.items():
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise UsageError(f"`{name}` is {tolerance:g}, and has to be 0 or a positive number")
    if (rtol or atol) and not values:
        names = " and ".join(f"`{name}`" for name, tolerance in given.items() if tolerance)
        raise UsageError(f"{names}: values are not compared", hint="Give `values=True` too.")
    return Tolerance(rtol, atol)


def _open_side(given: CheckpointLike, step: int | None, item: str | None, uint16: str | None) -> Source:
    """Open a checkpoint with this step and item, or a tree, which has neither."""
    from ckpt_surgery.inputs.checkpoints import open_as  # imports what reads recipes

    place = checkpoint_or_tree(given)
    if not isinstance(place, str):
        return open_as(place, uint16)
    try:
        return open_as(place, uint16, step=step, item=item)
    except UsageError as error:
        if item is None:
            raise
        problem = error.problems[0]
        apart = "Where only one side has it, name the path of each item, without `item=…` and `step=…`."
        raise UsageError(replace(problem, hint=f"{problem.hint or ''} {apart}".strip())) from None


def _structure_of(format: str) -> Holds:
    """Parts of a tree's structure that a format can express; all of them, if no format has that name."""
    known = formats.formats().get(format)
    return Holds(format) if known is None else Holds(format, known.holds_empty, known.holds_lists)


def history_of(source: Source) -> History | None:
    """Read from metadata and record how a checkpoint was made; None if no well-formed entry says so."""
    entry, document = history_entry(source.metadata), dict[str, Any]()
    with contextlib.suppress(SourceError, ValueError, RecursionError):  # of a record that cannot be read
        read = json.loads(read_record_of(source) or "{}")
        document = read if isinstance(read, dict) else {}
    recipes = [_recipe(name, raw) for name, raw in entry.get(RECIPES, {}).items() if isinstance(raw, dict)]
    last = document.get("recipe")
    if isinstance(last, dict) and not any(recipe.sha256 == last.get("sha256") for recipe in recipes):
        recipes.append(_recipe(str(last.get("path")), {**last, "params": document.get("params")}))
    if not (recipes or document or entry):
        return None
    version, origins = document.get("version"), document.get("sources")
    return History(
        tuple(recipes),
        tuple(_origin(raw) for raw in origins if isinstance(raw, dict)) if isinstance(origins, list) else (),
        version if isinstance(version, str) else None,
        _time_of_record(source) if document else None,
        tuple(entry.get(CONFIG, {})),
    )


def _recipe(name: str, entry: Mapping[str, Any]) -> PastRecipe:
    params = entry.get("params")
    return PastRecipe(name, str(entry.get("sha256", "")), params if isinstance(params, dict) else {})


def _origin(entry: Mapping[str, Any]) -> Origin:
    step, item = entry.get("step"), entry.get("item")
    name, path, format = (str(entry.get(name, "")) for name in ("name", "path", "format"))
    step, item = step if isinstance(step, int) else None, item if isinstance(item, str) else None
    return Origin(name, path, format, step, item)


def _time_of_record(source: Source) -> datetime | None:
    """Modification time of the file that holds the record; None in a bucket."""
    if is_url(source.path):
        return None
    place = record_path(source)
    place = place if os.path.exists(place) else source.path
    return datetime.fromtimestamp(os.stat(place).st_mtime, UTC)
