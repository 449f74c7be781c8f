"""Writing zarr groups: version 3 with a CRC-32C over each chunk, or version 2.

One directory for each component of a key, one file for each chunk. Stored bytes are copied: a chunk is a file
of its own here, and rarely one where it comes from.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.limits import not_held
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.zarr_arrays import OPEN_ARRAYS
from ckpt_surgery.formats.shared.zarr_files import check_reachable
from ckpt_surgery.formats.shared.zarr_layout import ATTRIBUTES_2, FILE_NAMES, GROUP_2, NODE_3, RESERVED
from ckpt_surgery.formats.shared.zarr_metadata import EXTENDED, NATIVE
from ckpt_surgery.formats.shared.zarr_writing import (
    DRIVERS,
    adopted_metadata,
    array_definition,
    chunk_name,
    put,
    store_errors,
)
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.handles import Handles
from ckpt_surgery.storage.regions import storage_errors

NAME_BYTES = 255
"""Of one directory's name: what Linux's file systems allow."""
PATH_BYTES = 3072
"""Of a key: leaves a quarter of what Linux allows for where the group lies and for the chunks' names."""
LOCK_SUFFIX = ".__lock"
"""Names that end so are TensorStore's own."""
_HELD = frozenset((*NATIVE, *EXTENDED))


# --- what the format cannot hold --------------------------------------------------------------------------


_NO_ARRAYS = {
    LeafKind.STRING: "a string",
    LeafKind.PRNG_KEY: "a PRNG key, whose type would be lost",
}


def unsupported(leaves: Sequence[Leaf], zarr: int) -> list[str]:
    """Why a group of that version of zarr cannot hold these leaves, one sentence each; empty: it can."""
    one_by_one = [sentence for leaf in leaves for sentence in _of_leaf(leaf, zarr)]
    return [*one_by_one, *_of_all([leaf.key for leaf in leaves])]


def _of_leaf(leaf: Leaf, zarr: int) -> Iterator[str]:
    name = f"`{shown(leaf.key.text)}`"
    if leaf.kind in _NO_ARRAYS:
        yield f"{name} is {_NO_ARRAYS[leaf.kind]}; zarr groups hold plain arrays only; drop it."
    elif leaf.spec is not None and leaf.spec.dtype.name not in _HELD:
        yield f"{name} {not_held(leaf.spec.dtype, 'zarr cannot store')}"
    why = _no_path(leaf.key.text, zarr)
    if why is not None:
        yield f"{name} {why}; rename it."


def _no_path(text: str, zarr: int) -> str | None:
    """Why a key is no path of directories; None where it is one."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "is not valid Unicode, so it cannot be stored as UTF-8"
    if len(text.encode()) > PATH_BYTES:
        return f"has {len(text.encode())} bytes, too many for a path"
    reasons = (_no_name(name, zarr) for name in text.split(SEPARATOR))
    return next((reason for reason in reasons if reason is not None), None)


def _no_name(name: str, zarr: int) -> str | None:
    """Why a part of a key cannot be the name of a group or an array."""
    told = f"`{shown(name[:50])}`"
    if not name:
        return "has an empty part, which cannot be a directory's name"
    if not name.strip(".") or set(name) & set("\0\\"):
        return f"has the part {told}, which cannot be the name of a zarr node"
    if name in RESERVED or name.endswith(LOCK_SUFFIX):
        return f"has the part {told}, which is the name of a file of zarr's or TensorStore's own"
    if zarr == 3 and name.startswith("__"):
        return f"has the part {told}, and zarr version 3 keeps names with `__` in front for itself"
    if len(name.encode()) > NAME_BYTES:
        return f"has the part {told}… of {len(name.encode())} bytes, and a name may have {NAME_BYTES}"
    return None


def _of_all(keys: Sequence[Key]) -> Iterator[str]:
    for text, count in Counter(key.text for key in keys).items():
        if count > 1:
            yield f"{count} leaves would have the name `{shown(text)}`; rename all but one."


def _groups(text: str) -> Iterator[str]:
    """The keys of the groups that a leaf is in, but for the root."""
    parts = text.split(SEPARATOR)
    return (SEPARATOR.join(parts[:i]) for i in range(1, len(parts)))


# --- the sink ---------------------------------------------------------------------------------------------


class ZarrSink:
    """Writes a group into a directory. Thread-safe."""

    def __init__(self, directory: Path, zarr: int, attributes: Mapping[str, Any]):
        self._directory = directory
        self._zarr = zarr
        self._attributes = attributes
        self._definitions: dict[str, bytes] = {}
        """Of arrays to be computed, by key text."""
        self._handles = Handles(self._opened, OPEN_ARRAYS)
        self._context: Any = None

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why zarr cannot hold these leaves, one sentence each; empty: it can."""
        return unsupported(leaves, self._zarr)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether this version of zarr can describe these stored bytes."""
        return adopted_metadata(manifest, self._zarr) is not None

    def create(self, outputs: Sequence[Output]) -> None:
        """Make every group and every array, without chunks. Raises StorageError."""
        import tensorstore as ts

        # Durability is the committer's work, once, when everything is written.
        self._context = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False})
        self._write_group("", self._attributes)
        groups = {group: None for output in outputs for group in _groups(output.leaf.key.text)}
        for group in groups:
            self._write_group(group, {})
        for output in outputs:
            self._write_definition(output)

    def _write_group(self, group: str, attributes: Mapping[str, Any]) -> None:
        if self._zarr == 3:
            node = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
            self._write_file(group, NODE_3, json.dumps(node).encode())
            return
        self._write_file(group, GROUP_2, b'{"zarr_format": 2}')
        if attributes:
            self._write_file(group, ATTRIBUTES_2, json.dumps(dict(attributes)).encode())

    def _write_definition(self, output: Output) -> None:
        text, spec = output.leaf.key.text, output.leaf.spec
        assert spec is not None
        if output.stored is None:
            with store_errors(f"`{shown(text)}`"):
                definition = array_definition(self._zarr, spec.dtype.name, spec.shape, output.chunks)
            self._definitions[text] = definition
        else:
            definition = json.dumps(adopted_metadata(output.stored, self._zarr)).encode()
        self._write_file(text, FILE_NAMES[self._zarr], definition)

    def _write_file(self, node: str, name: str, data: bytes) -> None:
        """A file in the directory of a group or an array, which is made unless it is the root."""
        path = self._directory / node / name
        with storage_errors(path):
            if node:
                path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)

    def adopt(self, output: Output) -> None:
        """Copy stored bytes, inside the kernel where it can. Raises StorageError, SourceError."""
        text = output.leaf.key.text
        assert output.stored is not None
        for index, chunk in output.stored.chunks.items():
            path = self._directory / text / chunk_name(index, self._zarr)
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(exist_ok=False)
            copy_chunk(chunk, path, 0)

    def _opened(self, text: str) -> Any:
        import tensorstore as ts

        spec = {
            "driver": DRIVERS[self._zarr],
            "kvstore": {"driver": "file", "path": os.path.join(self._directory.resolve(), text, "")},
            "metadata": json.loads(self._definitions[text]),
            # Chunks that are missing are for others to wonder about.
            "store_data_equal_to_fill_value": True,
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        return ts.open(spec, open=True, write=True, assume_metadata=True, context=self._context).result()

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks. Raises StorageError."""
        text, spec = output.leaf.key.text, output.leaf.spec
        assert spec is not None
        assert (block.dtype, block.shape) == (spec.dtype, region.shape)
        if region.size:
            with store_errors(f"`{shown(text)}`"):
                put(self._handles.get(text), region, block).result()

    def finish(self) -> None:
        """Everything is written already; what writing took is let go."""
        self._handles.clear()
        self._context = None


def open_zarr_sink(directory: Path, options: SinkOptions) -> ZarrSink:
    """A sink on an empty directory. The custom metadata become the group's attributes.

    Raises UsageError for options that make no group.
    """
    if options.zarr not in DRIVERS:
        raise UsageError(f"There is no zarr version {options.zarr}", hint="Use 2 or 3.")
    check_no_choice("zarr groups have", options.step, options.item, "dst_")
    check_reachable(os.fspath(directory.resolve()), UsageError)
    try:
        json.dumps(dict(options.metadata))
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata is not JSON: {error}") from error
    return ZarrSink(directory, options.zarr, dict(options.metadata))
