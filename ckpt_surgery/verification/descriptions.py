"""Checksums of a checkpoint's descriptions: leaves, custom metadata, and files without arrays.

A flipped bit there changes no element, and may still change what an element means.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Source, details_of
from ckpt_surgery.storage.companion_names import is_companion
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import directory_names, exists, is_directory, names_below, real_path
from ckpt_surgery.storage.reading import opened, range_crc
from ckpt_surgery.storage.record_files import RECORD_NAME, record_path
from ckpt_surgery.verification.reading_back import Checker

ABOVE = "../"
"""Prefix of the names of files in a step's directory, beside the item with the record."""
FileChecksum = tuple[int, int]
"""Length and CRC-32C of a file without arrays, or of the bytes before its first element."""


@dataclass(frozen=True)
class DescriptionChecksums:
    """CRC-32C of leaf descriptions, metadata, and files without arrays."""

    crc: int | None = None
    """CRC-32C of the descriptions of all leaves and of the custom metadata; None if unknown."""
    documents: Mapping[str, FileChecksum] = field(default_factory=dict)
    """Checksums of files, by their paths relative to the record's directory."""


def description_checksums(source: Source, leaves: Mapping[str, Leaf]) -> DescriptionChecksums:
    """Compute the checksums of an open checkpoint. Raises SourceError if a file cannot be read."""
    directory = _directory_of(source)
    description = _description_crc(source, leaves)
    if directory is None:
        return DescriptionChecksums(description)
    first: dict[str, int] = {}  # offset of the first element in each file
    for leaf in leaves.values():
        for chunk in () if leaf.manifest is None else leaf.manifest.chunks.values():
            if chunk.inline is None:
                first[chunk.file] = min(chunk.offset, first.get(chunk.file, chunk.offset))
    begins = {real_path(file): begin for file, begin in first.items()}
    inside = details_of(source).holds_record
    documents = {}
    for name in _names(source, directory):
        path = _joined(directory, name)
        with opened(path) as file:
            length = begins.get(real_path(path), file.stat.size)
            # A file that the record is inside changes with it.
            if length and not (inside and RECORD_NAME.encode() in file.read(0, length)):
                documents[name] = length, range_crc(file, 0, length)
    return DescriptionChecksums(description, documents)


def check_descriptions(
    source: Source, leaves: Mapping[str, Leaf], expected: DescriptionChecksums, checker: Checker
) -> None:
    """Compare descriptions and files without arrays with their checksums."""
    if expected.crc is not None and _description_crc(source, leaves) != expected.crc:
        checker.add(None, None, "the descriptions of its leaves, or its metadata, have changed")
    directory = _directory_of(source)
    if directory is None:
        return
    documents = {**expected.documents, **_documents_of_step(directory, expected)}
    for name, (length, crc) in documents.items():
        path = _joined(directory, name)
        if name.startswith(ABOVE) and not exists(path):
            continue  # the item alone was copied
        checker.compare_file(path, name, length, crc)


def _documents_of_step(directory: str, expected: DescriptionChecksums) -> Mapping[str, FileChecksum]:
    """Newer checksums of files beside the item, recorded by the last run that wrote an item of the step."""
    place = os.path.join(os.path.dirname(directory), RECORD_NAME)
    if not any(name.startswith(ABOVE) for name in expected.documents) or not exists(place):
        return {}
    try:
        listed = read_json(place).get("documents", {}).items()
        newer = {f"{ABOVE}{name}": (int(length), int(crc)) for name, (length, crc) in listed}
    except (SourceError, AttributeError, TypeError, ValueError):
        return {}
    return {name: document for name, document in newer.items() if name in expected.documents}


def _names(source: Source, directory: str) -> Iterator[str]:
    """Yield the files below the record's directory except the record, and those beside an item.

    Config and tokenizer files, which people edit, describe no leaves: see `Record.companions`.
    """
    yield from (n for n in sorted(names_below(directory)) if n != RECORD_NAME and not is_companion(n))
    if source.item is not None and real_path(directory) != real_path(source.path):
        files = directory_names(os.path.dirname(directory)).files
        yield from (f"{ABOVE}{name}" for name in files if name != RECORD_NAME)


def _joined(directory: str, name: str) -> str:
    """Join the path of a document; URLs have no `..`, so the parent directory is spelled out."""
    if name.startswith(ABOVE):
        return os.path.join(os.path.dirname(directory), name.removeprefix(ABOVE))
    return os.path.join(directory, name)


def _directory_of(source: Source) -> str | None:
    """The directory that the names of documents are relative to; None for a checkpoint that is a file."""
    if not is_directory(source.path):
        return None
    inside, place = os.path.join(real_path(source.path), ""), real_path(record_path(source))
    return os.path.dirname(place) if place.startswith(inside) else source.path


def _description_crc(source: Source, leaves: Mapping[str, Leaf]) -> int:
    described = []
    for leaf in leaves.values():
        spec = None if leaf.spec is None else str(leaf.spec)
        about = leaf.kind.value, spec, leaf.sharding, leaf.prng_impl, leaf.string, leaf.empty
        described.append((leaf.key.text, repr(leaf.key.sequences), repr(about)))
    document = [sorted(described), dict(source.metadata)]
    return bytes_crc(json.dumps(document, sort_keys=True, default=repr).encode())
