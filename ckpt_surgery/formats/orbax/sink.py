"""Writing an Orbax item that every stock reader restores: one OCDBT database of zarr arrays.

Each worker writes the chunks that it computes into a database of its own. `finish` writes the item's database
over all of them and over the stored bytes that were adopted: an index, for which no data moves.

Source of the layout: what orbax-checkpoint 0.12.8 writes and reads.
"""

import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import Output, Sink
from ckpt_surgery.formats.orbax.documents import COMMITTED, about_checkpoint, documents
from ckpt_surgery.formats.orbax.encoder import directories
from ckpt_surgery.formats.orbax.existing import documents_of_step, link_others
from ckpt_surgery.formats.orbax.structure import STRUCTURE, structure_bytes
from ckpt_surgery.formats.orbax.tree import array_name, array_prefix
from ckpt_surgery.formats.orbax.writer import OrbaxWriter
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.ocdbt.reader import read_database
from ckpt_surgery.formats.shared.ocdbt.writer import IndexEntry, write_index
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    MANIFEST,
    PROCESS_PREFIX,
)
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr.outputs import definition
from ckpt_surgery.formats.shared.zarr.writing import chunk_name
from ckpt_surgery.storage.adopting import AdoptedFiles
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record


class OrbaxSink:
    """Writes one item. Nothing in the directory is valid before `finish`."""

    def __init__(self, directory: Path, options: SinkOptions, outputs: Sequence[Output]):
        self.outputs = outputs
        self._step_directory, self._item_directory = directories(directory, options)
        self._options = options
        self._started = time.time_ns()
        self._adopted = AdoptedFiles(self._item_directory, options.link_mode, outputs, options.replaced)

    def create(self) -> None:
        """Make the item's directory, and the file of copied bytes. Raises StorageError, SourceError."""
        with storage_errors(self._item_directory):
            self._item_directory.mkdir(parents=True, exist_ok=True)
        self._adopted.create()

    def attach(self, worker: str) -> OrbaxWriter:
        """A writer with a database of its own for what it computes."""
        database = self._item_directory / _database_name(worker)
        return OrbaxWriter(database, self._options.zarr, self.outputs, self._adopted, worker)

    def finish(self, workers: Sequence[str]) -> None:
        """Write the index, then the metadata, and the commit files last. What other workers wrote is removed.

        Raises StorageError, SourceError.
        """
        self._remove_others(workers)
        self._write_index(workers)
        with storage_errors(self._item_directory):
            if self._options.structure_file:
                leaves = [output.leaf for output in self.outputs]
                structure = structure_bytes((leaf, array_name(leaf.key)) for leaf in leaves)
                (self._item_directory / STRUCTURE).write_bytes(structure)
            found = documents(self.outputs, self._options.zarr, self._options.metadata)
            for name, document in found.items():
                path = self._item_directory / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(document), encoding="utf-8")
            self._commit()

    @property
    def record_directory(self) -> Path:
        return self._item_directory

    def record(self, text: str) -> bool:
        """Put the record into the item's directory. Raises StorageError."""
        put_record(self._item_directory / RECORD_NAME, text)
        return True

    def _write_index(self, workers: Sequence[str]) -> None:
        """One index over the metadata of all arrays, what was adopted, and what the workers computed."""
        computed: dict[bytes, bytes | Chunk] = {}
        for worker in workers:
            # Two workers write the same chunk only if one was taken for dead, and then both write the same
            # bytes.
            computed |= _written_by(worker, self._item_directory)
        arrays = [output for output in self.outputs if output.leaf.spec is not None]
        if arrays:
            entries = [entry for output in arrays for entry in self._entries(output)]
            entries += [IndexEntry(key, value) for key, value in computed.items()]
            self._remove_index({entry.value.file for entry in entries if isinstance(entry.value, Chunk)})
            write_index(self._item_directory, entries)

    def _remove_others(self, workers: Sequence[str]) -> None:
        """Remove the databases of workers that ended before they were done."""
        kept = set(map(_database_name, workers))
        with storage_errors(self._item_directory):
            for path in self._item_directory.glob(f"{PROCESS_PREFIX}*"):
                if path.name not in kept:
                    shutil.rmtree(path)

    def _remove_index(self, used: Collection[str]) -> None:
        """Remove what an earlier call of `finish` has left: the index, and data files that are not `used`."""
        with storage_errors(self._item_directory):
            (self._item_directory / MANIFEST).unlink(missing_ok=True)
            for path in self._item_directory.glob("d/*"):
                if f"d/{path.name}" not in used:
                    path.unlink()

    def _entries(self, output: Output) -> Iterator[IndexEntry]:
        """The metadata of an array, and its chunks where they were adopted."""
        zarr = self._options.zarr
        prefix = array_prefix(array_name(output.leaf.key)).encode()
        yield IndexEntry(prefix + FILE_NAMES[zarr].encode(), definition(output, zarr))
        if output.stored is not None:
            for index, chunk in output.stored.chunks.items():
                located = chunk if chunk.inline is not None else self._adopted.located(chunk, output.copied)
                yield IndexEntry(prefix + chunk_name(index, zarr).encode(), located)

    def _commit(self) -> None:
        """Write the files that tell Orbax that the save was finished, the item's before the step's."""
        step, item = self._step_directory, self._item_directory
        if self._options.existing is not None:
            link_others(Path(self._options.existing), step, item.name)
            for name, text in documents_of_step(self._options.existing, item.name, self._started).items():
                (step / name).write_bytes(text)
            (item / COMMIT_FILE).write_bytes(COMMITTED)
            return
        within = item.name if item != step else None
        about = about_checkpoint(within, self._started, self._options.metadata)
        (step / CHECKPOINT_METADATA).write_text(json.dumps(about), encoding="utf-8")
        for directory in dict.fromkeys((item, step)):
            (directory / COMMIT_FILE).write_bytes(COMMITTED)


def _database_name(worker: str) -> str:
    """The directory of a worker's database, named as Orbax names the databases of its processes."""
    return f"{PROCESS_PREFIX}{worker}"


def _written_by(worker: str, item: Path) -> dict[bytes, bytes | Chunk]:
    """What a worker computed, by its keys: values, or where they lie within the item."""
    name = _database_name(worker)
    if not (item / name / MANIFEST).exists():
        return {}
    database, inside = read_database(os.fspath(item / name)), os.path.join(item, name, "")
    found: dict[bytes, bytes | Chunk] = {}
    for key, value in database.entries.items():
        at = database.locate(key)
        assert at is not None
        found[key] = (
            value if isinstance(value, bytes) else replace(at, file=f"{name}/{at.file.removeprefix(inside)}")
        )
    return found


def open_orbax_sink(directory: PathLike, options: SinkOptions, outputs: Sequence[Output]) -> Sink:
    """A sink that writes an item, at DIRECTORY/STEP/ITEM where the options name a step."""
    if isinstance(directory, str) and urls.is_url(directory):
        from ckpt_surgery.formats.orbax.object_sink import ObjectSink  # takes what only stores need

        return ObjectSink(directory, options, outputs)
    return OrbaxSink(Path(directory), options, outputs)
