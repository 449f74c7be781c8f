"""Writing an Orbax item that every stock reader restores: one OCDBT database of zarr arrays.

Workers write data files, and note what lies where. `finish` writes the item's database over all of them and
over the files that were linked: an index, for which no data moves.

Source of the layout: what orbax-checkpoint 0.12.8 writes and reads.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import Output, Sink
from ckpt_surgery.formats.orbax.documents import (
    COMMITTED,
    REWRITTEN,
    about_checkpoint,
    documents,
    documents_of_step,
)
from ckpt_surgery.formats.orbax.encoder import step_and_item
from ckpt_surgery.formats.orbax.structure import STRUCTURE, structure_bytes
from ckpt_surgery.formats.orbax.tree import array_name, array_prefix
from ckpt_surgery.formats.orbax.writer import NOTES, Entries, OrbaxWriter, read_notes, worker_directory
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.ocdbt.writer import IndexEntry, make_index
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    MANIFEST,
    PROCESS_PREFIX,
)
from ckpt_surgery.formats.shared.zarr.encoding import definition
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.linking import link_rest
from ckpt_surgery.storage.places import open_places
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record

NODES = "d/"
"""The directory of the index's nodes, and of linked files."""


class OrbaxSink:
    """Writes one item, to a directory or below a URL. Nothing is valid before `finish`."""

    def __init__(self, directory: str, options: SinkOptions, outputs: Sequence[Output]):
        self.outputs = outputs
        self._step_directory, self._item_directory = step_and_item(directory, options)
        self._options = options
        self._started = time.time_ns()
        self._step = open_places(self._step_directory)
        self._item = open_places(self._item_directory, options.link_mode, options.replaced)
        if not urls.is_url(directory):
            self.record_directory = Path(self._item_directory)  # which keeps config files beside the record

    def create(self) -> None:
        """Make the item's directory."""
        self._item.create()

    def attach(self, worker: str) -> OrbaxWriter:
        """A writer with data files of its own."""
        return OrbaxWriter(self._item, self._options.zarr, worker)

    def finish(self, workers: Sequence[str]) -> None:
        """Write the index, then the metadata, and the commit files last. What is not of use is deleted."""
        computed = self._collect(workers)
        options, zarr = self._options, self._options.zarr
        arrays = [output for output in self.outputs if output.leaf.spec is not None]
        entries = [IndexEntry(key.encode(), value) for key, value in computed.items()]
        for output in arrays:
            key = array_prefix(array_name(output.leaf.key)) + FILE_NAMES[zarr]
            entries.append(IndexEntry(key.encode(), definition(output, zarr)))
        index = make_index(entries) if arrays else None
        if index is not None:
            self._item.put(index.name, index.nodes)
        self._item.begin_documents()
        if index is not None:
            self._item.put(MANIFEST, [index.manifest])
        if options.structure_file:
            leaves = [output.leaf for output in self.outputs]
            structure = structure_bytes((leaf, array_name(leaf.key)) for leaf in leaves)
            self._item.put(STRUCTURE, [structure])
        for name, document in documents(self.outputs, zarr, options.metadata).items():
            self._item.put(name, [json.dumps(document).encode()])
        self._commit()
        self._item.close()
        self._step.close()

    def _collect(self, workers: Sequence[str]) -> Entries:
        """Collect the places of all chunks. Deletes what other workers wrote, and what nobody noted.

        Two workers write the same chunk only if one was taken for dead, and then both write the same values.
        """
        sizes = self._item.sizes()
        computed: Entries = {}
        for worker in workers:
            own = worker_directory(worker)
            files = {name: size for name, size in sizes.items() if name.startswith(own)}
            computed |= read_notes(self._item, worker, files)
        used = {value.file for value in computed.values() if isinstance(value, Chunk)}
        notes = tuple(worker_directory(worker) + NOTES for worker in workers)
        ours = (NODES, PROCESS_PREFIX)
        unused = [n for n in sizes if n.startswith(ours) and n not in used and not n.startswith(notes)]
        self._item.delete(unused)
        return computed

    def _commit(self) -> None:
        """Write the files that tell Orbax that the save was finished, the item's before the step's."""
        item = os.path.basename(self._item_directory)
        existing = self._options.existing
        if existing is not None:
            if not urls.is_url(self._step_directory):
                new = Path(self._step_directory)
                with storage_errors(new):
                    link_rest(Path(existing), new, keep={item}, leave_out={item, *REWRITTEN})
            self._item.put(COMMIT_FILE, [COMMITTED])
            for name, text in documents_of_step(existing, item, self._started).items():
                self._step.put(name, [text])
            return
        within = None if self._item_directory == self._step_directory else item
        about = about_checkpoint(within, self._started, self._options.metadata)
        self._step.put(CHECKPOINT_METADATA, [json.dumps(about).encode()])
        for places in (self._item, self._step) if within is not None else (self._step,):
            places.put(COMMIT_FILE, [COMMITTED])

    def record(self, text: str) -> bool:
        """Put the record into the item's directory."""
        put_record(f"{self._item_directory}/{RECORD_NAME}", text)
        return True


def open_sink(directory: PathLike, options: SinkOptions, outputs: Sequence[Output]) -> Sink:
    """A sink that writes an item, at DIRECTORY/STEP/ITEM where the options name a step."""
    return OrbaxSink(os.fspath(directory), options, outputs)
