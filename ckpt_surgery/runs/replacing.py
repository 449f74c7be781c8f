"""Check what `overwrite` replaces: only one checkpoint of a known format, or an empty directory."""

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence

from ckpt_surgery.core.errors import DestinationError, SourceError, UsageError, in_one_line
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import few, number_of, shown
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.shared.orbax_layout import is_checkpoint, is_item, steps_in
from ckpt_surgery.storage import listing
from ckpt_surgery.storage.record_files import RECORD_NAME
from ckpt_surgery.verification.record import Malformed, load_record

MOST_NAMES = 5
"""Limit on the files, items or steps that a message names."""
REMOVE = "Remove it yourself if nobody needs it, or choose another destination."
"""Hint for a destination that `overwrite` does not replace."""


def check_replaceable(path: str, ignored: Collection[str] = ()) -> None:
    """Refuse anything but one whole checkpoint without other files; `path` is real, or a URL.

    `ignored`: relative names that do not count. Reads metadata only. Raises DestinationError.
    """
    try:
        if listing.is_directory(path):
            _check_no_steps(path)
        elif not listing.is_file(path):
            raise UsageError(f"{shown(path)} is neither a file nor a directory")
        sources = list(_opened(path))
        for source in sources:
            source.leaves()
        if listing.is_directory(path):
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
    same = [name for name, number in steps_in(listing.real_path(directory)).items() if number == step]
    others = [name for name in same if name != str(step)]
    if others:
        problem = f"{shown(directory)}: has the step {step} already, in {few(others)}"
        raise DestinationError(problem, hint="Choose another step, or move that directory away.")


def _check_no_steps(directory: str) -> None:
    steps = [] if is_checkpoint(directory) else sorted(steps_in(directory).items(), key=lambda item: item[1])
    if steps:
        name, number = steps[-1]
        latest = f"`dst_step={number}`" if name == str(number) else shown(os.path.join(directory, name))
        raise DestinationError(
            f"{shown(directory)}: holds {number_of(len(steps), 'step')} "
            f"({few([name for name, _ in steps], MOST_NAMES)}); a directory of steps is not replaced",
            hint=f"Replace one of them: {latest}; or choose another destination.",
        )


def _opened(path: str) -> Iterator[Source]:
    """Open the checkpoint at a path: several sources for a step with several items of arrays.

    Raises SourceError if it is damaged, or of no known format, with what is there.
    """
    try:
        format = opening.detect_format(path)
    except SourceError as error:
        held = f"; in it: {few(listing.names_in(path), MOST_NAMES)}" if listing.is_directory(path) else ""
        raise SourceError(f"{error.problems[0].message}{held}") from error
    items: list[str | None] = [None]
    if listing.is_directory(path) and not is_item(path):
        names = listing.directory_names(path).directories
        items = [name for name in names if is_item(os.path.join(path, name))]
    for item in items if len(items) > 1 else [None]:
        yield opening.open_source(path, format.name, item=item)


def _check_nothing_else(directory: str, source: Source, ignored: Collection[str]) -> None:
    """Refuse a directory with files besides those of its checkpoint. Raises DestinationError."""
    names = [name for name in sorted(listing.names_below(directory)) if name not in ignored]
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
