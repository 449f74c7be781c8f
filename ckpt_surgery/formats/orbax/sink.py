"""Writing an Orbax item that every stock reader restores: one OCDBT database of zarr arrays.

Source of the layout: what orbax-checkpoint 0.12.8 writes and reads. Chunks carry a CRC-32C (zarr 3),
and chunks of zeros are stored like any other: Orbax refuses an array whose chunks are missing.
"""

import json
import os
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, grid_counts
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.orbax.detect import check_holds_steps
from ckpt_surgery.formats.orbax.structure import STRUCTURE, structure_bytes
from ckpt_surgery.formats.orbax.tree import ARRAY_METADATA, SHARDINGS, STRINGS, array_name, array_prefix
from ckpt_surgery.formats.orbax.unsupported import unsupported
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.ocdbt_reader import read_database
from ckpt_surgery.formats.shared.ocdbt_writer import Entry, write_index
from ckpt_surgery.formats.shared.orbax_layout import CHECKPOINT_METADATA, COMMIT_FILE, TREE_METADATA
from ckpt_surgery.formats.shared.zarr_files import check_reachable
from ckpt_surgery.formats.shared.zarr_layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr_writing import (
    DRIVERS,
    adopted_metadata,
    array_definition,
    chunk_name,
    put,
    store_errors,
)
from ckpt_surgery.storage.adopting import DataFiles
from ckpt_surgery.storage.handles import Handles

DEFAULT_ITEM = "default"
HANDLER = "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler"
"""What a CheckpointManager restores the item with when it is asked for a step alone."""
ONE_DEVICE = '{"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"}'
"""For PRNG keys that come without a sharding: Orbax cannot restore a jax.Array that has none."""

INLINE_BYTES = 1024
"""Values up to this size lie in the index, as Orbax writes them."""
NODE_BYTES = 2**20
"""Decoded size of a B+tree node: every commit rewrites those on the way to what changed."""
DIRECT_BYTES = 4 * 2**20
"""Blocks from this size on are written at once; smaller ones are gathered into one commit."""
BATCH_BYTES = 32 * 2**20
"""Gathered blocks are committed from this many bytes on."""
IN_FLIGHT_BYTES = 64 * 2**20
"""Blocks being encoded and written at the same time; one larger block goes alone."""
COMPUTED = "ocdbt.process_0"
"""The database of computed arrays where others are adopted: named as Orbax names a process's."""
OPEN_ARRAYS = 256
"""Handles kept open."""


class OrbaxSink:
    """Writes one item; nothing in the directory is valid before `finish`. Thread-safe."""

    def __init__(self, directory: Path, options: SinkOptions):
        self._step_directory, self._item_directory = _directories(directory, options)
        self._options = options
        self._started = time.time_ns()
        self._outputs: Sequence[Output] = ()
        self._definitions: dict[str, bytes] = {}
        self._handles = Handles(self._opened, OPEN_ARRAYS)
        self._kvstore: Any = None
        self._context: Any = None
        self._gate = _ByteGate(IN_FLIGHT_BYTES)
        self._batch = _Batch()
        self._batch_lock = threading.Lock()
        self._adopting = False
        self._data_files = DataFiles(self._item_directory, options.link_mode)
        self._entries: list[Entry] = []

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why Orbax cannot hold these leaves, one sentence each; empty: it can."""
        return unsupported(leaves)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether the item's version of zarr can describe these stored bytes."""
        return adopted_metadata(manifest, self._options.zarr) is not None

    def create(self, outputs: Sequence[Output]) -> None:
        """Make the database with the metadata of every array to be computed. Raises StorageError."""
        self._outputs = outputs
        self._item_directory.mkdir(parents=True, exist_ok=True)
        self._adopting = any(output.stored is not None for output in outputs)
        arrays = [o for o in outputs if o.leaf.spec is not None and o.stored is None]
        if not arrays:
            return
        with store_errors("the index"):
            self._open_database()
            self._write_definitions(arrays)

    def _open_database(self) -> None:
        import tensorstore as ts

        # Durability is the committer's work, once, when everything is written.
        self._context = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False})
        base = {"driver": "file", "path": f"{self._database.resolve()}/"}
        config = {
            "max_inline_value_bytes": INLINE_BYTES,
            "max_decoded_node_bytes": NODE_BYTES,
            "manifest_kind": "single",
        }
        spec = {"driver": "ocdbt", "base": base, "config": config, "assume_config": True}
        self._kvstore = ts.KvStore.open(spec, context=self._context).result()

    @property
    def _database(self) -> Path:
        """Where computed arrays go: beside adopted ones into a database of their own, as processes do."""
        return self._item_directory / COMPUTED if self._adopting else self._item_directory

    def adopt(self, output: Output) -> None:
        """Link or copy stored bytes, and note where they are for the index. StorageError, SourceError."""
        assert output.stored is not None
        prefix = array_prefix(array_name(output.leaf.key)).encode()
        metadata = adopted_metadata(output.stored, self._options.zarr)
        entries = [Entry(prefix + FILE_NAMES[self._options.zarr].encode(), json.dumps(metadata).encode())]
        place = self._data_files.copied if output.copied else self._data_files.linked
        for index, chunk in output.stored.chunks.items():
            name = prefix + chunk_name(index, self._options.zarr).encode()
            entries.append(Entry(name, chunk.inline if chunk.inline is not None else place(chunk)))
        self._entries.extend(entries)

    def _write_index(self) -> None:
        """One index over what was adopted and what was computed."""
        entries = self._entries
        if self._kvstore is not None:
            computed, inside = read_database(str(self._database)), os.path.join(self._database, "")
            for key, value in computed.entries.items():
                at = computed.locate(key)
                assert at is not None
                file = f"{COMPUTED}/{at.file.removeprefix(inside)}"
                entries.append(Entry(key, value if isinstance(value, bytes) else replace(at, file=file)))
        write_index(self._item_directory, entries)

    def _write_definitions(self, arrays: Sequence[Output]) -> None:
        import tensorstore as ts

        transaction = ts.Transaction()
        inside = self._kvstore.with_transaction(transaction)
        for output in arrays:
            assert output.leaf.spec is not None
            spec, name = output.leaf.spec, array_name(output.leaf.key)
            text = array_definition(self._options.zarr, spec.dtype.name, spec.shape, output.chunks)
            self._definitions[name] = text
            inside[array_prefix(name) + FILE_NAMES[self._options.zarr]] = text
        transaction.commit_async().result()

    def _opened(self, name: str) -> Any:
        import tensorstore as ts

        spec = {
            "driver": DRIVERS[self._options.zarr],
            "metadata": json.loads(self._definitions[name]),
            "store_data_equal_to_fill_value": True,
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        kvstore = self._kvstore / array_prefix(name)
        opened = ts.open(
            spec, kvstore=kvstore, open=True, write=True, assume_metadata=True, context=self._context
        )
        return opened.result()

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks; `block` must not change until `flush` or `finish`.

        Small blocks are gathered, so that many of them make one commit. Raises StorageError.
        """
        name = array_name(output.leaf.key)
        assert output.leaf.spec is not None
        assert block.dtype == output.leaf.spec.dtype
        assert block.shape == region.shape
        with store_errors(f"`{shown(output.leaf.key.text)}`"):
            if block.nbytes >= DIRECT_BYTES:
                with self._gate.holding(block.nbytes):
                    put(self._handles.get(name), region, block).result()
            else:
                self._gather(name, output, region, block)

    def _gather(self, name: str, output: Output, region: Region, block: np.ndarray) -> None:
        import tensorstore as ts

        with self._batch_lock:
            if self._batch.transaction is None:
                self._batch.transaction = ts.Transaction()
            assert output.leaf.spec is not None
            single = max(grid_counts(output.leaf.spec.shape, output.chunks), default=1) == 1
            handle = self._opened(name) if single else self._handles.get(name)
            writing = put(handle.with_transaction(self._batch.transaction), region, block)
            self._batch.writing.append(writing.copy)
            self._batch.nbytes += block.nbytes
            if self._batch.nbytes >= BATCH_BYTES:
                self._commit_batch()

    def _commit_batch(self) -> None:
        batch, self._batch = self._batch, _Batch()
        for copied in batch.writing:
            copied.result()
        if batch.transaction is not None:
            batch.transaction.commit_async().result()

    def flush(self) -> None:
        """Everything written so far is in the database's files (not yet synced). Raises StorageError."""
        with self._batch_lock, store_errors("gathered blocks"):
            self._commit_batch()

    def finish(self) -> None:
        """Commit what is gathered, then the metadata, and the commit files last. Raises StorageError."""
        self.flush()
        self._handles.clear()
        if self._adopting:
            self._write_index()
        self._kvstore = self._context = None
        leaves = [output.leaf for output in self._outputs]
        arrays = {array_name(o.leaf.key): o for o in self._outputs if _is_jax_array(o.leaf)}
        with store_errors("metadata"):
            if arrays:
                self._write_json(SHARDINGS, {_encoded(n): _sharding(o.leaf) for n, o in arrays.items()})
                listed = [_array_metadata(name, output) for name, output in arrays.items()]
                self._write_json(f"{ARRAY_METADATA}0", {"array_metadatas": listed})
            if any(leaf.kind is LeafKind.STRING for leaf in leaves):
                self._write_json(STRINGS, _nested_strings(leaves))
            if self._options.structure_file:
                structure = structure_bytes((leaf, array_name(leaf.key)) for leaf in leaves)
                (self._item_directory / STRUCTURE).write_bytes(structure)
            self._write_json(TREE_METADATA, self._tree())
            self._commit()

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        path = self._item_directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")

    def _tree(self) -> dict[str, Any]:
        return {
            "tree_metadata": {str(o.leaf.key.names): _tree_entry(o) for o in self._outputs},
            "use_ocdbt": True,
            "use_zarr3": self._options.zarr == 3,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": dict(self._options.metadata) or None,
        }

    def _commit(self) -> None:
        """The files that tell Orbax that the save was finished, the item's before the step's."""
        within = self._item_directory != self._step_directory
        about = {
            "item_handlers": {self._item_directory.name: HANDLER} if within else HANDLER,
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": self._started,
            "commit_timestamp_nsecs": time.time_ns(),
            "custom_metadata": dict(self._options.metadata),
        }
        (self._step_directory / CHECKPOINT_METADATA).write_text(json.dumps(about), encoding="utf-8")
        for directory in dict.fromkeys((self._item_directory, self._step_directory)):
            (directory / COMMIT_FILE).write_text("Checkpoint commit was successful", encoding="utf-8")


def _directories(directory: Path, options: SinkOptions) -> tuple[Path, Path]:
    """The step's directory and the item's: one and the same for a flat checkpoint."""
    step = directory if options.step is None else directory / str(options.step)
    if options.step is None and options.item is None:
        return step, step
    return step, step / (options.item or DEFAULT_ITEM)


def open_orbax_sink(directory: Path, options: SinkOptions) -> OrbaxSink:
    """A sink on an empty directory. Raises UsageError for options that make no checkpoint."""
    if options.zarr not in (2, 3):
        raise UsageError(f"There is no zarr version {options.zarr}", hint="Use 2 or 3.")
    if options.structure_file and options.zarr != 2:
        raise UsageError("A structure file is for arrays of zarr 2", hint="Say `zarr: 2`, or leave it out.")
    if options.step is not None and options.step < 0:
        raise UsageError(f"A step cannot be negative: {options.step}")
    if options.step is not None:
        check_holds_steps(os.fspath(directory), options.step)
    item = options.item
    if item is not None and (not item or item in (".", "..") or "/" in item or "\0" in item):
        raise UsageError(f"`{shown(item)}` cannot be the name of an item", hint="Use a plain name.")
    check_reachable(os.fspath(_directories(directory, options)[1].resolve()), UsageError)
    try:
        json.dumps(dict(options.metadata))
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata is not JSON: {error}") from error
    return OrbaxSink(directory, options)


@dataclass
class _Batch:
    """Small blocks that will be committed together."""

    transaction: Any = None
    writing: list[Any] = field(default_factory=list)
    """Futures of blocks that the transaction takes up."""
    nbytes: int = 0


class _ByteGate:
    """Lets blocks through while the sum of their sizes stays within a bound."""

    def __init__(self, limit: int):
        self._limit = limit
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        """Wait until the block fits; one that is larger than the bound waits for all others."""
        with self._changed:
            self._changed.wait_for(lambda: self._held == 0 or self._held + nbytes <= self._limit)
            self._held += nbytes
        try:
            yield
        finally:
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()


def _is_jax_array(leaf: Leaf) -> bool:
    """Whether Orbax restores it as a jax.Array, for which it wants a sharding."""
    return leaf.kind is LeafKind.PRNG_KEY or (leaf.kind is LeafKind.ARRAY and leaf.sharding is not None)


def _encoded(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _sharding(leaf: Leaf) -> str:
    return ONE_DEVICE if leaf.sharding is None else leaf.sharding


def _array_metadata(name: str, output: Output) -> dict[str, Any]:
    impl = output.leaf.prng_impl
    about = {
        "param_name": name,
        "write_shape": list(output.chunks),
        "chunk_shape": list(output.chunks),
        "ext_metadata": {"random_key_impl": impl} if impl else None,
    }
    return {"array_metadata": about}


def _nested_strings(leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Strings by array name; a `/` in a name nests, as in the JSON pointers that Orbax reads with."""
    document: dict[str, Any] = {}
    for leaf in leaves:
        if leaf.kind is LeafKind.STRING:
            *parents, last = array_name(leaf.key).split("/")
            inner = document
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = leaf.string
    return document


def _tree_entry(output: Output) -> dict[str, Any]:
    leaf = output.leaf
    parts = [
        {"key": name, "key_type": 1 if in_sequence else 2}
        for name, in_sequence in zip(leaf.key.names, leaf.key.sequences, strict=True)
    ]
    value: dict[str, Any] = {"value_type": _value_type(leaf), "skip_deserialize": leaf.kind is LeafKind.EMPTY}
    if _is_jax_array(leaf):
        value["write_shape"] = list(output.chunks)
    return {"key_metadata": parts, "value_metadata": value}


def _value_type(leaf: Leaf) -> str:
    if leaf.kind is LeafKind.EMPTY:
        assert leaf.empty is not None
        return leaf.empty
    if leaf.kind is LeafKind.STRING:
        return "string"
    if _is_jax_array(leaf):
        return "jax.Array"
    assert leaf.spec is not None
    return "scalar" if leaf.kind is LeafKind.SCALAR and leaf.spec.ndim == 0 else "np.ndarray"
