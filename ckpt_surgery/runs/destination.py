"""The destination of a run: check it before and after planning, and open the sink that writes there.

Only one checkpoint of a known format, or an empty directory, is replaced; and a run that writes one item of a
step never removes another.
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import DestinationError, SourceError, UsageError, in_one_line
from ckpt_surgery.core.protocols import Sink, Source
from ckpt_surgery.core.text import few, number_of, shown
from ckpt_surgery.engine.staging import checks
from ckpt_surgery.engine.staging import object_leftovers as leftovers
from ckpt_surgery.engine.staging.life import Staging
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.locks import lock_name
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.staging.uploads import DirectoryUpload, FileUpload
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.shared.orbax_layout import committed, is_checkpoint, is_item, steps_in
from ckpt_surgery.inputs.opening import on_disk
from ckpt_surgery.inputs.preparing import sink_options
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.planner.prepared import DEFAULT_ITEM, DestinationOptions, Prepared, identity_of
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import directory_names, is_directory, is_file, names_below, real_path, walk
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME
from ckpt_surgery.storage.store import store_of
from ckpt_surgery.verification.record import Malformed, load_record


@dataclass(frozen=True)
class Publication:
    """A destination that is published atomically: by a rename, or by the last object written."""

    place: str
    """Path, or URL in an object store."""
    step_only: bool
    """True if it is one step of an existing CheckpointManager directory."""
    item: str | None = None
    """Name of the item that the caller wants written there; None if left open."""
    of_items: bool = field(default=False, compare=False)
    """True if it has items: a step, or the directory of the named item."""

    @property
    def is_url(self) -> bool:
        """True if it lies in an object store."""
        return urls.is_url(self.place)

    @property
    def path(self) -> Path:
        """The path of a destination that is not a URL."""
        assert not self.is_url
        return Path(self.place)

    @property
    def at(self) -> Path | str:
        """The path, or the URL as a text."""
        return self.place if self.is_url else self.path


def place_of(request: Request) -> Publication:
    """Place of a request's result: its destination, or that of the step in it. Raises UsageError for none."""
    if request.dst is None:
        raise UsageError("no destination is given", hint="Name the directory or file to write.")
    path, step, item = request.dst, request.dst_step, request.dst_item
    step_only, of_items = step is not None and is_directory(path), step is not None or item is not None
    return Publication(os.path.join(path, str(step)) if step_only else path, step_only, item, of_items)


def check_before(where: Publication, request: Request, overwrite: bool) -> Replacement | None:
    """Refuse a destination that is an input, exists, or is locked; returns the part of it to replace.

    Comes before planning. Raises UsageError if it is an input or lies in one, DestinationError if it exists
    and is not to be replaced (see `replacement`) or is locked, StorageError if there is no permission.
    """
    if where.is_url:
        checks.check_apart(request.inputs, where.place)
    else:
        there = None if overwrite else _there(where.path)
        items = None if there is None else items_of(there)
        if items is not None and where.item is None:
            raise _no_item_named(where, items)
        read = [Path(path) for path in request.beside if path is not None]
        checks.check_path(request.inputs, where.path, overwrite or items is not None, read)
    if where.step_only:
        check_step_is_new(os.path.dirname(where.place), int(os.path.basename(where.place)))
    return replacement(where, overwrite)


def check_after(
    where: Publication, replaces: Replacement | None, prepared: Prepared, overwrite: bool
) -> Prepared:
    """Refuse a destination that lacks space or would lose items; returns the plan with its replacement.

    Raises UsageError for a file of a source, DestinationError if items would be lost, StorageError for space.
    """
    written = prepared.destination.item or DEFAULT_ITEM
    items = () if replaces is None or replaces.one_item else replaces.items
    lost = [name for name in items if not where.of_items or name != written]
    if lost and (where.of_items or len(items) > 1):
        what = f"has items that this run does not write ({few(lost, MOST_NAMES)}); it is not replaced"
        hint = "Write one item of it, `dst_item=NAME`, or remove what nobody needs yourself."
        raise DestinationError(f"{shown(where.place)}: {what}", hint=hint)
    # A destination that does not exist yet can only be a missing file of a source, beside its other files.
    sources = (s for s in on_disk(prepared.sources.values()) if overwrite or not is_directory(s.path))
    checks.check_files((file for source in sources for file in source.files()), where.at)
    if not where.is_url:
        costs = prepared.plan.costs
        checks.check_space(where.path, costs.bytes_copied + costs.bytes_computed)
    return prepared.replacing(replaces)


def open_sink(prepared: Prepared, where: Publication, directory: str, record_bytes: int = 0) -> Sink:
    """Open the sink that writes into a directory, with room for `record_bytes` of a record."""
    options, replaces = prepared.destination, prepared.plan.replaces
    given = replace(
        sink_options(options, prepared.plan.metadata, list(prepared.sources.values())),
        record_bytes=record_bytes,
        existing=where.place if replaces is not None and replaces.one_item else None,
    )
    if where.step_only:
        given = replace(given, step=None, item=given.item or DEFAULT_ITEM)
    return opening.open_sink(options.format, directory, given, outputs_of(prepared.plan))


def stage_for(prepared: Prepared, where: Publication) -> Staging:
    """Make the stage in which a result is written, locally where the format cannot write to stores."""
    options, identity, replaces = prepared.destination, identity_of(prepared), prepared.plan.replaces
    form, one_file = formats.format_named(options.format), is_one_file(options)
    if not where.is_url:
        return DiskStage(where.path, one_file, identity, replaces)
    url, costs = where.place, prepared.plan.costs
    nbytes = costs.bytes_copied + costs.bytes_computed
    if one_file and not form.stores:
        return FileUpload(url, identity, replaces, nbytes)
    target = StoreStage(url, identity, replaces, options.item, form.sparse)
    return target if form.stores else DirectoryUpload(target, nbytes)


def is_one_file(options: DestinationOptions) -> bool:
    """True if the result is one file rather than a directory."""
    return formats.format_named(options.format).is_file(options.name)


@dataclass(frozen=True)
class Occupant:
    """Existing content of a destination."""

    path: str
    """Real path or URL; another one than the destination's if a killed run moved it aside."""
    state: str
    """Fingerprint of everything there."""
    is_empty: bool
    """True for an empty directory."""
    left: frozenset[str] = frozenset()
    """Names of leftovers of ended runs below it, which do not count."""
    begun: bool = False
    """True if one of them began to publish. The next run completes that first, so nothing is checked."""


def _occupant(where: Publication) -> Occupant | None:
    state = checks.state_of(where.at)
    if not where.is_url:
        there = _there(where.path)
        if there is None or state is None:
            return None
        with storage_errors(where.path):
            return Occupant(there, state, is_directory(there) and not os.listdir(there))
    others, ended_runs = leftovers.examine(*store_of(where.place))
    begun = any(attempt.switching for attempt in ended_runs)
    if state is None and not begun:
        return None
    left = frozenset(name for attempt in ended_runs for name in attempt.objects)
    return Occupant(where.place, state or "", not others and is_directory(where.place), left, begun)


def _there(path: Path) -> str | None:
    """Real path of the content of a destination, also if it was moved aside; None if there is none."""
    with storage_errors(path):
        occupant = checks.replaced_by(path)
    return None if occupant is None else real_path(os.fspath(occupant))


def replacement(where: Publication, overwrite: bool) -> Replacement | None:
    """Describe the part of a destination that a run replaces; None if nothing is there.

    Raises DestinationError if it is not replaced: without `overwrite`, an item of the name that is
    written; with it, anything but one whole checkpoint or an empty directory. Reads metadata only.
    """
    there = _occupant(where)
    if there is None:
        return None
    items = None if where.item is None else _items(there)
    if items is not None:
        return _replaced_item(where, there, items, overwrite)
    if overwrite and there.begun:
        return Replacement(where.place, there.state)
    if overwrite and there.is_empty:
        return None if where.is_url else Replacement(where.place, there.state)
    if overwrite:
        check_replaceable(there.path, there.left)
        return Replacement(where.place, there.state, items=_items(there) or (), nbytes=_size(there.path))
    # In a store, the run itself tidies up what ended runs left, and then looks at what is there.
    if where.is_url and where.item is None and not (there.is_empty or there.left):
        store, name = store_of(where.place)
        items = items_of(there.path) if store.stat(lock_name(name)) is None else None
        if items is not None:
            raise _no_item_named(where, items)
    return None


def _replaced_item(where: Publication, there: Occupant, items: Sequence[str], overwrite: bool) -> Replacement:
    """Replacement by one item in a step with these items. Raises DestinationError."""
    item, path = str(where.item), os.path.join(there.path, str(where.item))
    stays = tuple(name for name in items if name != item)
    replaced = Replacement(where.place, there.state, one_item=True, stays=stays)
    if there.begun:
        return replace(replaced, items=(item,) if overwrite else ())
    if not committed(there.path):
        raise DestinationError(f"{shown(where.place)}: was never committed; no item is added", hint=REMOVE)
    if item not in items:
        return replaced
    if not overwrite:
        hint = "Choose another name, `dst_item=NAME`, or replace this item alone: `overwrite=True`."
        raise DestinationError(f"{shown(os.path.join(where.place, item))}: exists already", hint=hint)
    inside = f"{item}/"
    check_replaceable(path, {name.removeprefix(inside) for name in there.left if name.startswith(inside)})
    leaves = len(opening.open_source(path).leaves())
    return replace(replaced, items=(item,), leaves=leaves, nbytes=_size(path))


def _size(path: str) -> int:
    """Size in bytes of a file, or of all files below a directory. Does not follow links."""
    if not is_directory(path):
        return stat_file(path).size
    if urls.is_url(path):
        return sum(stat.size for stat in walk(path, path).values())
    return sum(os.lstat(os.path.join(path, name)).st_size for name in names_below(path))


def items_of(directory: str) -> tuple[str, ...] | None:
    """Names of all items of a step, with arrays or without; None for other paths."""
    if not is_directory(directory) or is_item(directory) or not is_checkpoint(directory):
        return None
    if steps_in(directory):
        return None
    return tuple(name for name in directory_names(directory).directories if name != OWN.rstrip("/"))


def _items(there: Occupant) -> tuple[str, ...] | None:
    """Names of the items there, without leftovers of ended runs."""
    names = items_of(there.path)
    if names is None or not there.left:
        return names
    kept = {name.partition("/")[0] for name in names_below(there.path) if name not in there.left}
    return tuple(name for name in names if name in kept)


def _no_item_named(where: Publication, items: Sequence[str]) -> DestinationError:
    """Error for a step with items where no item to write is named."""
    return DestinationError(
        f"{shown(where.place)}: exists already, with items: {few(items, MOST_NAMES)}",
        hint="Write one item into it, which leaves the others as they are: `dst_item=NAME`. If its only "
        "item is the one that is written, replace it: `overwrite=True`.",
    )


MOST_NAMES = 5
"""Limit on the files, items or steps that a message names."""
REMOVE = "Remove it yourself if nobody needs it, or choose another destination."
"""Hint for a destination that `overwrite` does not replace."""


def check_replaceable(path: str, ignored: Collection[str] = ()) -> None:
    """Refuse anything but one whole checkpoint without other files; `path` is real, or a URL.

    `ignored`: relative names that do not count. Reads metadata only. Raises DestinationError.
    """
    try:
        if is_directory(path):
            _check_no_steps(path)
        elif not is_file(path):
            raise UsageError(f"{shown(path)} is neither a file nor a directory")
        sources = list(_opened(path))
        for source in sources:
            source.leaves()
        if is_directory(path):
            _check_nothing_else(path, sources[0], ignored)
        elif others := [name for name in opening.own_files(sources[0]) if name != path]:
            what = f"belongs to a checkpoint of several files ({few(others, MOST_NAMES)})"
            raise _only_a_part(path, what)
        _check_no_part(path)
    except (SourceError, UsageError) as error:
        reason = in_one_line(error)
        where = "" if reason.startswith(shown(path)) else f"{shown(path)}: "
        raise DestinationError(f"{where}{reason}; it is not replaced", hint=REMOVE) from error


def check_step_is_new(directory: str, step: int) -> None:
    """Refuse a step beside another of its number, such as `step_00000010`. Raises DestinationError."""
    same = [name for name, number in steps_in(real_path(directory)).items() if number == step]
    others = [name for name in same if name != str(step)]
    if others:
        problem = f"{shown(directory)}: has the step {step} already, in {few(others)}"
        raise DestinationError(problem, hint="Choose another step, or move that directory away.")


def _check_no_steps(directory: str) -> None:
    steps = [] if is_checkpoint(directory) else sorted(steps_in(directory).items(), key=lambda item: item[1])
    if steps:
        name, number = steps[-1]
        latest = f"`dst_step={number}`" if name == str(number) else shown(os.path.join(directory, name))
        held = f"{number_of(len(steps), 'step')} ({few([name for name, _ in steps], MOST_NAMES)})"
        problem = f"{shown(directory)}: holds {held}; a directory of steps is not replaced"
        raise DestinationError(problem, hint=f"Replace one of them: {latest}; or choose another destination.")


def _opened(path: str) -> Iterator[Source]:
    """Open the checkpoint at a path: several sources for a step with several items of arrays."""
    format = opening.detect_format(path)
    items: list[str | None] = [None]
    if is_directory(path) and not is_item(path):
        names = directory_names(path).directories
        items = [name for name in names if is_item(os.path.join(path, name))]
    for item in items if len(items) > 1 else [None]:
        yield opening.open_source(path, format.name, item=item)


def _check_nothing_else(directory: str, source: Source, ignored: Collection[str]) -> None:
    """Refuse a directory with files besides those of its checkpoint. Raises DestinationError."""
    names = [name for name in sorted(names_below(directory)) if name not in ignored]
    others = [name for name in opening.foreign_files(source, directory, names) if not _is_record(name, names)]
    if others:
        with contextlib.suppress(Malformed):
            record = load_record(source)
            copied = () if record is None else [file.name for file in record.companions]
            others = [name for name in others if name not in copied]
    if others:
        raise DestinationError(
            f"{shown(directory)}: holds {number_of(len(others), 'file')} besides its {source.format} "
            f"checkpoint ({few(others, MOST_NAMES)}); it is not replaced",
            hint="Move what you need elsewhere, or name the checkpoint itself.",
        )


def _is_record(name: str, names: Sequence[str]) -> bool:
    """True if a file is a run's record, in a checkpoint's directory or beside a checkpoint of one file."""
    if os.path.basename(name) in (RECORD_NAME, f"{RECORD_NAME}.tmp"):
        return True
    return name.endswith(f".{RECORD_NAME}") and name.removesuffix(f".{RECORD_NAME}") in names


def _check_no_part(path: str) -> None:
    """Refuse a part of a larger checkpoint, such as a shard or an array. Raises DestinationError."""
    around = os.path.dirname(path)
    try:
        files = opening.own_files(opening.open_source(around))
    except (SourceError, UsageError):
        return  # no checkpoint, or several that are independent of each other
    inside = [file == path or file.startswith(path + os.sep) for file in files]
    if any(inside) and not all(inside):
        raise _only_a_part(path, f"is a part of the checkpoint {shown(around)}")


def _only_a_part(path: str, what: str) -> DestinationError:
    hint = "Choose another destination."
    return DestinationError(f"{shown(path)}: {what}; it is not replaced alone", hint=hint)
