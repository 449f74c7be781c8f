"""Writing an Orbax item to a store: data at once, index and documents at the end, commit files last."""

import json
import time
from collections.abc import Sequence

from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.orbax.documents import COMMITTED, about_checkpoint, documents
from ckpt_surgery.formats.orbax.encoder import places
from ckpt_surgery.formats.orbax.existing import documents_of_step
from ckpt_surgery.formats.orbax.object_writer import NOTES, Entries, ObjectWriter, written_by
from ckpt_surgery.formats.orbax.structure import STRUCTURE, structure_bytes
from ckpt_surgery.formats.orbax.tree import array_name, array_prefix
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.ocdbt.writer import IndexEntry, index_bytes
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    MANIFEST,
    PROCESS_PREFIX,
)
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr.outputs import definition
from ckpt_surgery.storage.draft import documents_follow
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record
from ckpt_surgery.storage.stores import store_of

NODES = "d"
"""The directory of an item that the nodes of its index are in; before that is put, of an earlier attempt."""


class ObjectSink:
    """Writes one item below a URL. Nothing refers to its data before `finish`."""

    def __init__(self, directory: str, options: SinkOptions, outputs: Sequence[Output]):
        self.outputs = outputs
        self._step, self._item = places(directory, options)
        self._options = options
        self._started = time.time_ns()

    def create(self) -> None:
        """Do nothing: a store has no directories, and workers share no objects."""

    def attach(self, worker: str) -> ObjectWriter:
        """A writer with objects of its own."""
        return ObjectWriter(self._item, self._options.zarr, self.outputs, worker)

    def finish(self, workers: Sequence[str]) -> None:
        """Put the index, then the metadata, and the commit files last. What is not of use is deleted.

        Raises StorageError.
        """
        computed: Entries = {}
        for worker in workers:
            computed |= written_by(self._item, worker)
        self._delete_unused(workers, computed)
        zarr = self._options.zarr
        arrays = [output for output in self.outputs if output.leaf.spec is not None]
        entries = [IndexEntry(key, value) for key, value in computed.items()]
        for output in arrays:
            key = array_prefix(array_name(output.leaf.key)) + FILE_NAMES[zarr]
            entries.append(IndexEntry(key.encode(), definition(output, zarr)))
        store, _ = store_of(self._item)
        index = index_bytes(entries) if arrays else None
        if index is not None:
            store.put(self._name(self._item, index.name), index.nodes)
        documents_follow(store)
        if index is not None:
            store.put(self._name(self._item, MANIFEST), index.manifest)
        if self._options.structure_file:
            leaves = [output.leaf for output in self.outputs]
            structure = structure_bytes((leaf, array_name(leaf.key)) for leaf in leaves)
            store.put(self._name(self._item, STRUCTURE), structure)
        for name, document in documents(self.outputs, zarr, self._options.metadata).items():
            store.put(self._name(self._item, name), json.dumps(document).encode())
        item = self._item.rpartition("/")[2]
        if self._options.existing is not None:
            store.put(self._name(self._item, COMMIT_FILE), COMMITTED)
            of_step = documents_of_step(self._options.existing, item, self._started)
            for file, text in of_step.items():
                store.put(self._name(self._step, file), text)
            return
        within = None if self._item == self._step else item
        about = about_checkpoint(within, self._started, self._options.metadata)
        store.put(self._name(self._step, CHECKPOINT_METADATA), json.dumps(about).encode())
        for directory in dict.fromkeys((self._item, self._step)):
            store.put(self._name(directory, COMMIT_FILE), COMMITTED)

    def _delete_unused(self, workers: Sequence[str], entries: Entries) -> None:
        """Delete what other workers put, and what runs put that ended before they noted it."""
        store, item = store_of(self._item)
        prefix = f"{item}/" if item else ""
        used = {value.file for value in entries.values() if isinstance(value, Chunk)}
        kept = {f"{PROCESS_PREFIX}{worker}" for worker in workers}
        unused = []
        for name in store.walk(prefix):
            file = name.removeprefix(prefix)
            first, _, rest = file.partition("/")
            noted = rest.startswith(NOTES) or file in used
            ours = first == NODES or first.startswith(PROCESS_PREFIX)
            if ours and not (first in kept and noted):
                unused.append(name)
        store.delete(unused)

    def record(self, text: str) -> bool:
        """Put the record below the item. Raises StorageError."""
        put_record(f"{self._item}/{RECORD_NAME}", text)
        return True

    def _name(self, directory: str, name: str) -> str:
        return store_of(f"{directory}/{name}")[1]
