"""Where a result is written until it is published: beside its destination, or in its object store."""

from collections.abc import Iterator
from contextlib import contextmanager

from ckpt_surgery.destinations import Publication, is_file
from ckpt_surgery.engine.staging import stage as life
from ckpt_surgery.engine.staging.checks import check_directory, check_same
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.object_directory import DirectoryUpload
from ckpt_surgery.engine.staging.object_file import FileUpload
from ckpt_surgery.engine.staging.objects import Replacing, StoreStage
from ckpt_surgery.engine.staging.stage import Stage
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.resuming import identity_of


@contextmanager
def staged(prepared: Prepared, where: Publication, resume: bool) -> Iterator[Stage]:
    """Lock the destination of a result, and prepare the place that it is written into: see `life.staged`."""
    stage = _in_store(prepared, where.place) if where.is_url else _on_disk(prepared, where)
    with life.staged(stage, resume):
        yield stage


def _on_disk(prepared: Prepared, where: Publication) -> Stage:
    one_file = is_file(prepared.destination)
    return DiskStage(where.path, one_file, identity_of(prepared), prepared.replaces)


def _in_store(prepared: Prepared, url: str) -> Stage:
    """Formats that do not write to stores themselves are written to a local directory, and uploaded."""
    format, one_file = formats.named(prepared.destination.format), is_file(prepared.destination)
    identity, replaces, costs = identity_of(prepared), prepared.replaces, prepared.plan.costs

    def check() -> None:
        if not one_file:
            check_directory(url)
        check_same(url, None if replaces is None else replaces.state)

    overwrite, nbytes = (
        replaces is not None and replaces.overwrites,
        costs.bytes_copied + costs.bytes_computed,
    )
    if one_file and not format.stores:
        return FileUpload(url, overwrite, check, identity, nbytes)
    within = prepared.destination.item if prepared.writes_one_item else None
    target = StoreStage(url, identity, Replacing(overwrite, check, within, format.sparse))
    return target if format.stores else DirectoryUpload(target, nbytes)
