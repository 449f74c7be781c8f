"""Find, check and publish the parts of a destination."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ckpt_surgery.core.errors import DestinationError, SourceError, UsageError, VerificationError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.engine.parts import HEAD, Head, LocalParts, ObjectParts, Parts
from ckpt_surgery.engine.staging.leftovers import announce, is_published
from ckpt_surgery.engine.staging.life import Staging, staged
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.staging.stages import Publication
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.runs.destination import items_of
from ckpt_surgery.runs.replacing import MOST_NAMES
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import directory_names, exists, is_directory
from ckpt_surgery.storage.paths import path_text
from ckpt_surgery.storage.views import forget
from ckpt_surgery.verification.record import Malformed, load_record

_STEP_PARTS = re.compile(r"\.([0-9]+)\.ckpt-surgery-parts")


def parts_of(where: Publication) -> Parts:
    """The parts of a destination, started or not."""
    return ObjectParts(where.place) if where.is_url else LocalParts(where.path)


def check_format(where: Publication, format: str) -> None:
    """Refuse shards in a format that only one machine can write to a store. Raises UsageError."""
    if where.is_url and not opening.encoder(format, SinkOptions()).details.shards_in_stores:
        raise UsageError(
            f"{shown(where.place)}: {format} checkpoints are not written to a bucket in shards",
            hint="Apply the plan without `shard`, or write orbax.",
        )


def parts_to_commit(dst: str) -> tuple[Publication, Parts]:
    """Find the parts of a path or URL: beside it, or of a step in it.

    Raises UsageError if there are parts of several steps.
    """
    parts = parts_of(Publication(dst, False))
    if parts.read(HEAD) is None and is_directory(dst):
        forget()
        matches = map(_STEP_PARTS.fullmatch, directory_names(dst).directories)
        steps = sorted(int(match[1]) for match in matches if match)
        if len(steps) > 1:
            raise UsageError(
                f"{shown(dst)}: has parts of several steps ({few(list(map(str, steps)), MOST_NAMES)})",
                hint=f"Name one of them: {shown(os.path.join(dst, str(steps[0])))}.",
            )
        if steps:
            step = Publication(os.path.join(dst, str(steps[0])), True)
            return step, parts_of(step)
    return Publication(dst, False), parts


def check_unwritten(where: Publication, head: Head | None, overwrite: bool) -> None:
    """Refuse an occupied destination that the run does not replace. Raises DestinationError."""
    if where.is_url and head is not None:
        return  # data lies there from the beginning; a marker is refused where the parts are put together
    replaces = overwrite or where.of_items if head is None else head.replaces is not None
    forget()
    if exists(where.place) and not replaces:
        if head is None:
            hint = "Choose another destination, or replace it: `overwrite=True`."
            raise DestinationError(f"{shown(where.place)}: exists already", hint=hint)
        raise DestinationError(
            f"{shown(where.place)}: something was put there since the first shard began, without leave to "
            "replace it",
            hint="Move it away to go on, or give up the parts beside it: remove "
            f"{shown(parts_of(where).place)}.",
        )


def check_not_committed(where: Publication, plan: str) -> None:
    """Refuse a late shard of a plan that was published already. Raises DestinationError."""
    if any(shards.get("plan") == plan for shards in shards_at(where.place)):
        raise DestinationError(
            f"{shown(where.place)}: the shards of this plan were put together and published there",
            hint="There is nothing left to do. To make it again, remove it first.",
        )


def shards_at(place: str) -> Iterator[Mapping[str, Any]]:
    """Yield the shards that wrote the checkpoint at a path or URL, from each readable record."""
    forget()
    if not exists(place):
        return
    for item in items_of(place) or (None,):
        try:
            record = load_record(opening.open_source(place, item=item))
        except (SourceError, UsageError, Malformed):
            continue
        if record is not None and "shards" in record.document:
            yield record.document["shards"]


def is_committed(where: Publication, parts: Parts, head: Head) -> bool:
    """True if a run published these parts but ended before it removed them."""
    if isinstance(parts, LocalParts):
        with storage_errors(where.path):
            return is_published(parts.directory, where.path)
    return any(shards.get("run") == head.run for shards in shards_at(where.place))


class _PartsStage(DiskStage):
    """Stage for the work of shards."""

    def __init__(self, where: Publication, parts: LocalParts, head: Head, one_file: bool):
        super().__init__(where.path, one_file, head.identity, head.replaces, parts.complete)
        self._parts = parts

    def publish(self) -> None:
        """Record which file or directory it is, then rename it. Raises DestinationError, StorageError."""
        with storage_errors(self._parts.directory):
            announce(self._parts.directory, os.lstat(self.output))
        super().publish()


@contextmanager
def stage_for_parts(where: Publication, parts: Parts, head: Head, prepared: Prepared) -> Iterator[Staging]:
    """Lock the work of the shards for publication; after a failure it stays among the parts.

    Raises DestinationError if another run publishes there, StorageError.
    """
    if isinstance(parts, LocalParts):
        with staged(_PartsStage(where, parts, head, prepared.form.one_file)) as stage:
            parts.take()
            if not exists(stage.product):
                raise VerificationError(
                    f"{path_text(stage.output)} is gone, which the shards have written",
                    hint="Remove the directory of parts, and run all shards again.",
                )
            yield stage
        return
    item = prepared.destination.item
    with staged(StoreStage(where.place, head.identity, head.replaces, item, shards=head.run)) as draft:
        yield draft
