"""Publishing a checkpoint of several files in a store, which were written to a local directory.

Data is uploaded first; then the documents that make it readable are put, with the protocol of `objects`.
Where there are no documents, one file of data makes the checkpoint complete, and comes last.
"""

import os
from functools import partial
from pathlib import Path

from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging import objects
from ckpt_surgery.engine.staging.object_file import beside_published
from ckpt_surgery.engine.staging.uploading import carried_out
from ckpt_surgery.storage.companion_names import is_companion
from ckpt_surgery.storage.record_files import beside_text
from ckpt_surgery.storage.store import Only

MOST_DOCUMENT_BYTES = 64 << 20
"""Larger files count as data: documents are held in memory."""


def publish_directory(staging: objects.ObjectStaging, directory: Path, record: Path) -> None:
    """Upload everything in a directory and make it the destination, the older one being whole until then.

    `record`: the record to put beside it, if there is such a file. Raises DestinationError where another
    process has written there, or has taken the destination over; StorageError where the store refuses;
    VerificationError where there is nothing.
    """
    files = _files_in(directory)
    if not files:
        raise VerificationError(f"{shown(staging.url)}: nothing was written that makes it a checkpoint")
    documents = [name for name in files if is_document(name, files[name].stat().st_size)]
    data = sorted(files.keys() - documents, key=lambda name: (not is_companion(name), name))  # weights last
    draft, last = staging.draft, None if documents else data.pop()
    if staging.journal.before:  # whoever reads the older one must not find the config of this one
        for name in filter(is_companion, data):
            draft.hold(name)
    carried_out([partial(draft.upload, name, files[name]) for name in data])
    with beside_published(staging.store, beside_text(staging.prefix), record) as notices:
        if last is None:
            draft.finishing()
            for name in documents:
                draft.put(name, files[name].read_bytes())
            objects.publish(staging)
        elif staging.journal.before:
            draft.hold(last)
            carried_out([partial(draft.upload, last, files[last])])
            objects.publish(staging)
        else:
            objects.publish_last(staging, partial(draft.upload, last, files[last], Only.ABSENT))
    staging.notices += tuple(f"{shown(staging.url)} is new and complete; {reason}" for reason in notices)


def is_document(name: str, size: int) -> bool:
    """Whether a file describes others, by its name: `.zarray`, `model.safetensors.index.json`.

    Config files do not: without the weights they are no checkpoint.
    """
    if is_companion(name):
        return False
    base = name.rpartition("/")[2]
    return (base.endswith(".json") or base.startswith(".")) and size <= MOST_DOCUMENT_BYTES


def _files_in(directory: Path) -> dict[str, Path]:
    """Every file, by the name that its object gets below the destination."""

    def refuse(error: OSError) -> None:
        raise error

    found = {}
    for folder, _, names in os.walk(directory, onerror=refuse):
        for name in names:
            path = Path(folder, name)
            found[path.relative_to(directory).as_posix()] = path
    return {name: found[name] for name in sorted(found)}
