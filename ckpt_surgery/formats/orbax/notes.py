"""Notes of one worker: which chunk lies where in the data files that it wrote.

From them `finish` makes the index of the item, and a worker that was killed goes on. Each flush adds a small
file of lines; a line has a CRC-32C, so that what a power cut has left of it counts as not written.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.formats.shared.orbax_layout import PROCESS_PREFIX
from ckpt_surgery.storage.places import Places

NOTES = "part-"
"""Beginning of the names of the files with notes."""
_ENTRIES_PER_LINE = 1000

Entries = dict[str, bytes | Chunk]
"""Stored bytes of chunks by key: the bytes, or where they lie within the item."""


class _ChunkNote(msgspec.Struct, array_like=True):
    """Some chunks of one data file, or some that are inline."""

    file: str
    """Name of the data file; empty for inline chunks."""
    keys: list[str]
    offsets: list[int]
    lengths: list[int]
    inline: list[bytes]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_ChunkNote)


def worker_directory(worker: str) -> str:
    """The directory of what a worker writes into an item, named as Orbax names those of its processes."""
    return f"{PROCESS_PREFIX}{worker}/"


def notes_bytes(entries: Mapping[str, bytes | Chunk]) -> bytes:
    """The lines about these chunks."""
    lines: list[_ChunkNote] = []
    by_file: dict[str, _ChunkNote] = {}
    for key, value in entries.items():
        file = "" if isinstance(value, bytes) else value.file
        line = by_file.get(file)
        if line is None or len(line.keys) == _ENTRIES_PER_LINE:
            line = by_file[file] = _ChunkNote(file, [], [], [], [])
            lines.append(line)
        line.keys.append(key)
        if isinstance(value, bytes):
            line.inline.append(value)
        else:
            line.offsets.append(value.offset)
            line.lengths.append(value.length)
    return b"".join(b"%08x %s\n" % (bytes_crc(text), text) for text in map(_ENCODER.encode, lines))


def read_notes(places: Places, worker: str, sizes: Mapping[str, int]) -> Entries:
    """The chunks that a worker has written: those in data files that are there, and long enough.

    `sizes`: files of the worker's directory, as `places.sizes` gives them. Linked files lie elsewhere and are
    linked again by whoever goes on. Later notes win.
    """
    directory = worker_directory(worker)
    names = sorted(name for name in sizes if name.startswith(directory + NOTES))
    found: Entries = {}
    for text in places.read([Chunk(name, 0, sizes[name]) for name in names]):
        for line in text.split(b"\n"):
            for key, value in _parsed(line):
                if isinstance(value, bytes) or _is_there(value, directory, sizes):
                    found[key] = value
    return found


def _is_there(chunk: Chunk, directory: str, sizes: Mapping[str, int]) -> bool:
    return not chunk.file.startswith(directory) or chunk.offset + chunk.length <= sizes.get(chunk.file, -1)


def _parsed(line: bytes) -> Iterable[tuple[str, bytes | Chunk]]:
    """The chunks of a line; none if it is damaged."""
    crc, _, text = line.partition(b" ")
    if crc != b"%08x" % bytes_crc(text):
        return ()
    note = _DECODER.decode(text)
    if not note.file:
        return zip(note.keys, note.inline, strict=True)
    columns = zip(note.keys, note.offsets, note.lengths, strict=True)
    return ((key, Chunk(note.file, offset, length)) for key, offset, length in columns)
