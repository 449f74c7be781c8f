"""Publish in a store a checkpoint of several files that were written to a local directory.

Data is uploaded first; then the documents that make it readable are put, with the protocol of `objects`.
Where there are no documents, one file of data makes the checkpoint complete, and comes last.
"""

from functools import partial

from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.engine.staging.object_file import beside_published
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.staging.spooled import Upload
from ckpt_surgery.storage.companion_names import is_companion
from ckpt_surgery.storage.listing import walk
from ckpt_surgery.storage.record_files import beside_text
from ckpt_surgery.storage.store import Only
from ckpt_surgery.system.threads import run_requests

MOST_DOCUMENT_BYTES = 64 << 20
"""Limit on the bytes of a document, which is held in memory; larger files count as data."""


class DirectoryUpload(Upload):
    """Files that are uploaded to a store when all of them are complete."""

    def __init__(self, target: StoreStage, nbytes: int = 0):
        """`target`: stage in the store. `nbytes`: the size of all files."""
        super().__init__(target.url, target.lock, False, target.identity, nbytes)
        self._target = target

    def begin(self, resume: bool) -> None:
        """Prepare the destination, and create the local directory."""
        self._target.begin(False)
        self._hand_on_notices()
        super().begin(resume)

    def _hand_on_notices(self) -> None:
        self.notices += self._target.notices
        self._target.notices = ()

    def renew(self) -> None:
        """Renew the destination's lock."""
        self._target.renew()

    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """Remove the local directory, and from the store all but the checkpoint."""
        return [*super().remove(keep, quickly), *self._target.remove()]

    def report(self, failure: BaseException) -> None:
        """Add the state of the destination."""
        super().report(failure)
        self._target.report(failure)

    def publish(self) -> None:
        """Upload everything, then switch the destination; the older one stays whole until then."""
        target = self._target
        files = {name: self.tree / name for name in sorted(walk(self.work, self.work))}
        if not files:
            raise VerificationError(f"{self.called}: nothing was written that makes it a checkpoint")
        documents = [name for name in files if is_document(name, files[name].stat().st_size)]
        data = sorted(
            files.keys() - documents, key=lambda name: (not is_companion(name), name)
        )  # weights last
        draft, last = target.draft, None if documents else data.pop()
        if target.before:  # whoever reads the older one must not find the config of this one
            for name in filter(is_companion, data):
                draft.hold(name)
        run_requests([partial(draft.upload, name, files[name]) for name in data])
        try:
            with beside_published(target.store, beside_text(target.prefix), self.record) as notices:
                if last is None:
                    draft.finishing()
                    for name in documents:
                        draft.put(name, files[name].read_bytes())
                    target.publish()
                elif target.before:
                    draft.hold(last)
                    run_requests([partial(draft.upload, last, files[last])])
                    target.publish()
                else:
                    target.publish_last(partial(draft.upload, last, files[last], Only.ABSENT))
        finally:
            self.published = target.published
            self._hand_on_notices()
        self.notices += tuple(f"{self.called} is new and complete; {reason}" for reason in notices)


def is_document(name: str, size: int) -> bool:
    """True if a file describes others, judged by its name: `.zarray`, `model.safetensors.index.json`.

    Config files do not: without the weights they are no checkpoint.
    """
    if is_companion(name):
        return False
    base = name.rpartition("/")[2]
    return (base.endswith(".json") or base.startswith(".")) and size <= MOST_DOCUMENT_BYTES
