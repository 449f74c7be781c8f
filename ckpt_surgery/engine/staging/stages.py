"""Choose where a result is written before it is published: beside the destination or in its object store."""

from dataclasses import dataclass, field
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.engine.staging.life import Staging
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.staging.uploads import DirectoryUpload, FileUpload
from ckpt_surgery.planner.identity import identity_of
from ckpt_surgery.planner.options import Prepared


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


def stage_for(prepared: Prepared, where: Publication) -> Staging:
    """Make the stage in which a result is written until it is published.

    Formats that do not write to stores themselves are written to a local directory, and uploaded.
    """
    form, identity, replaces = prepared.form, identity_of(prepared), prepared.replaces
    if not where.is_url:
        return DiskStage(where.path, form.one_file, identity, replaces)
    url, costs = where.place, prepared.plan.costs
    nbytes = costs.bytes_copied + costs.bytes_computed
    if form.one_file and not form.stores:
        return FileUpload(url, identity, replaces, nbytes)
    target = StoreStage(url, identity, replaces, prepared.destination.item, form.sparse)
    return target if form.stores else DirectoryUpload(target, nbytes)
