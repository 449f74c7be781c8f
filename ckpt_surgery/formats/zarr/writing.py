"""Writing zarr groups: version 3 with a CRC-32C over each chunk, or version 2.

Each component of a key is a directory, each chunk a file or an object, written at once; metadata comes last,
that of the root at the very end. Stored bytes are copied rather than linked, because a chunk is seldom a file
of its own where it comes from.
"""

import json
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.plain_files import NOT_UNICODE, LimitedEncoder, metadata_json, quoted, repeated_keys
from ckpt_surgery.formats.registry import Limits, SinkOptions
from ckpt_surgery.formats.shared.zarr import layout as zarr_layout
from ckpt_surgery.formats.shared.zarr.decoding import adopted_metadata
from ckpt_surgery.formats.shared.zarr.encoding import BytesInFlight, decoded, definition, encoded
from ckpt_surgery.formats.shared.zarr.files import check_reachable
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.listing import real_path
from ckpt_surgery.storage.places import open_places, stored_crc
from ckpt_surgery.storage.reading import read_ranges
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record

NAME_BYTES = 255
"""Longest name of a directory that Linux's file systems allow."""
PATH_BYTES = 3072
"""Longest key. A quarter of what Linux allows for a path is left for the group's own path and chunk names."""


def _no_name(name: str, zarr: int) -> str | None:
    """Reason why part of a key cannot name a group or an array, as a predicate; None if it can."""
    part = f"has the part `{shown(name[:50])}`" if name else "has an empty part"
    nbytes = len(name.encode())
    if not name.strip(".") or set(name) & set("\0\\"):
        return f"{part}, which cannot be the name of a zarr node"
    if name in zarr_layout.RESERVED or name.endswith(".__lock") or (zarr == 3 and name.startswith("__")):
        return f"{part}, a name that version {zarr} of zarr or TensorStore keeps for itself"
    return f"{part}… of {nbytes} bytes, and a name may have {NAME_BYTES}" if nbytes > NAME_BYTES else None


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for an unknown zarr version, and metadata that is not JSON."""
    if (zarr := options.zarr) not in zarr_layout.DRIVERS:
        raise UsageError(f"Not a version of zarr: {zarr}", hint="Use 2 or 3.")
    metadata_json(options.metadata)
    limits = Limits(
        ("zarr groups hold plain arrays", "zarr cannot store"),
        frozenset(map(dtype_named, HELD)),
        more=(partial(_wrong_paths, zarr), repeated_keys),
        adopts=lambda leaf, manifest: adopted_metadata(manifest, zarr) is not None,
    )
    return LimitedEncoder(limits)


def _wrong_paths(zarr: int, leaves: Sequence[Leaf]) -> Iterator[str]:
    """Keys that cannot be paths of directories."""
    for leaf in leaves:
        text = leaf.key.text
        if not is_unicode(text):
            why: str | None = NOT_UNICODE
        elif len(text.encode()) > PATH_BYTES:
            why = f"has {len(text.encode())} bytes, too many for a path"
        else:
            why = next(filter(None, (_no_name(name, zarr) for name in text.split(SEPARATOR))), None)
        if why is not None:
            yield f"{quoted(leaf)} {why}; rename it."


def check_destination(path: Path, options: SinkOptions) -> None:
    """Raises UsageError for a path that TensorStore takes for another one."""
    check_reachable(real_path(os.fspath(path)))


AT_A_TIME = 8
"""Largest number of chunks that are put, or copied, at a time for one array."""
TOGETHER_BYTES = 16 << 20
"""Stored bytes that are copied at a time; a larger chunk is copied piece by piece."""


class ZarrSink:
    """Writes a group, to a directory or below a URL. There is no group before `finish`.

    The custom metadata becomes the group's attributes.
    It is the `Writer` of all its workers, too: it buffers nothing. Safe to use from several threads.
    """

    def __init__(self, directory: PathLike, options: SinkOptions, outputs: Sequence[Output]):
        self.outputs = outputs
        self._directory = os.fspath(directory)
        self._places = open_places(directory)
        self._zarr = options.zarr
        self._attributes = dict(options.metadata)
        self._in_flight, self._copies = BytesInFlight(), BytesInFlight(TOGETHER_BYTES)

    def create(self) -> None:
        """Do nothing: workers share no files."""

    def attach(self, worker: str) -> "ZarrSink":
        return self

    def finish(self, workers: Sequence[str]) -> None:
        """Put the metadata, that of the root last."""
        self._places.begin_documents()
        groups: dict[str, Mapping[str, Any]] = {"": self._attributes}
        for output in self.outputs:
            text = output.leaf.key.text
            self._places.put(f"{text}/{zarr_layout.FILE_NAMES[self._zarr]}", [definition(output, self._zarr)])
            while SEPARATOR in text:
                text = text.rpartition(SEPARATOR)[0]
                groups.setdefault(text, {})
        for group in sorted(groups, reverse=True):
            for name, data in _group(self._zarr, groups[group]).items():
                self._places.put(posixpath.join(group, name), [data])
        self._places.close()

    def record(self, text: str) -> bool:
        """Put the record among the group's attributes: readers would warn of a file that is no part of it."""
        name = zarr_layout.NODE_3 if self._zarr == 3 else zarr_layout.ATTRIBUTES_2
        content = _group(self._zarr, {**self._attributes, RECORD_NAME: json.loads(text)})[name]
        put_record(f"{self._directory}/{name}", content.decode())
        return True

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        assert output.stored is not None
        crcs = {}

        def copy(one: tuple[Shape, Chunk]) -> None:
            index, chunk = one
            name = f"{output.leaf.key.text}/{zarr_layout.chunk_name(index, self._zarr)}"
            crc = known.get(index)
            size = None if crc is None else self._places.size(name)
            there = size is not None and stored_crc(self._places, Chunk(name, 0, size)) == crc
            crcs[index] = known[index] if there else self._copy(name, chunk)

        self._each(copy, output.stored.chunks.items())
        return TaskResult(crcs)

    def _copy(self, name: str, chunk: Chunk) -> int:
        if chunk.inline is None and chunk.length > TOGETHER_BYTES:
            return self._places.copy(chunk, name)
        with self._copies.holding(chunk.length):
            [data] = read_ranges([chunk])
            self._places.put(name, [data])
        return bytes_crc(data)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        prefix = f"{output.leaf.key.text}/"
        with self._in_flight.holding(block.nbytes):
            chunks = encoded(output, self._zarr, region, block)
            self._each(lambda one: self._places.put(prefix + one[0], [one[1]]), chunks)

    def read(self, output: Output, region: Region) -> np.ndarray:
        text = output.leaf.key.text
        names = zarr_layout.chunk_names(region, output.chunks, self._zarr)
        sizes = {name: self._places.size(f"{text}/{name}") for name in names}
        lacking = [name for name, size in sizes.items() if size is None]
        if lacking:
            raise damaged(f"`{shown(text)}` lacks {len(lacking)} of its chunks")
        places = [Chunk(f"{text}/{name}", 0, size or 0) for name, size in sizes.items()]
        chunks = dict(zip(sizes, self._places.read(places), strict=True))
        return decoded(output, self._zarr, region, chunks)

    def flush(self) -> None:
        """Return at once: `write` returns when its chunks are where they belong."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        if output.stored is None:
            names = zarr_layout.chunk_names(region, output.chunks, self._zarr)
        else:
            names = [zarr_layout.chunk_name(index, self._zarr) for index in output.stored.chunks]
        return self._places.paths(f"{output.leaf.key.text}/{name}" for name in names)

    def _each(self, work: Callable[[Any], object], items: Iterable[Any]) -> None:
        """Do the work for all items, several at a time where there are several."""
        listed = list(items)
        list(self._pool.map(work, listed) if len(listed) > 1 else map(work, listed))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="chunks")


open_sink = ZarrSink


def _group(zarr: int, attributes: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of each file with a group's metadata, by its name."""
    if zarr == 3:
        node = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        return {zarr_layout.NODE_3: json.dumps(node).encode()}
    contents = {zarr_layout.ATTRIBUTES_2: json.dumps(attributes).encode()} if attributes else {}
    return {**contents, zarr_layout.GROUP_2: b'{"zarr_format": 2}'}
