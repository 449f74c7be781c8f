"""The record of a checkpoint's origin: the recipe, the sources, and checksums of the result.

It is a JSON document in the checkpoint, `ckpt_surgery.json`, by which `verify` compares what is read. The
checksums of a leaf are one text: eight hexadecimal digits for each region of the grid, in C order.
"""

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Shape, grid_counts
from ckpt_surgery.core.digests import Digests, bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import AdoptedFile, Source, details_of
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.planner.plan import Plan, Step
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import directory_names, exists, is_directory, names_below, real_path
from ckpt_surgery.storage.reading import opened, range_crc
from ckpt_surgery.storage.record_files import RECORD_NAME, is_companion, read_record_of, record_path
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


SCHEMA, SEAL = 1, "crc32c"
"""Version of the record, and its member with the checksum of all others."""
UNKNOWN = DescriptionChecksums()
NONE, DIGITS = "--------", 8
"""Characters in place of a missing checksum of a region, and their number."""
_OF_SOURCE = ("name", "path", "format", "step", "item", "fingerprint")
SIDECAR_ROOM = 2048
"""Bytes for entries of about twenty config files; a record with more is written beside the checkpoint."""


@dataclass(frozen=True)
class Shards:
    """Entry of the record for a checkpoint written in shards."""

    count: int
    run: str
    """Random token of the directory with the parts of the shards."""
    plan: str
    """Digest of the plan and its sources."""


@dataclass(frozen=True)
class CopiedSidecar:
    """Entry of the record for a config or tokenizer file copied beside the weights."""

    name: str
    """Name in the checkpoint's directory."""
    size: int
    """Size in bytes when it was copied."""
    crc32c: int


@dataclass(frozen=True)
class Record:
    """A record as it was read."""

    document: Mapping[str, Any]
    """All of it, as JSON."""
    leaf_count: int
    """Number of leaves of the checkpoint, with and without checksums."""
    grids: Mapping[str, tuple[Shape, bool, str]]
    """Grid, flag for checksums of values, and the checksums in hexadecimal, by the texts of keys."""
    files: tuple[AdoptedFile, ...]
    """Adopted whole files of sources."""
    structure: DescriptionChecksums
    """Checksums of the checkpoint's descriptions. Another version of this program may describe it otherwise,
    so that of another version is empty."""
    companions: tuple[CopiedSidecar, ...] = ()
    """Config and tokenizer files copied beside the weights. People may edit them."""


class Malformed(Exception):
    """Raised for a record that this program did not write; the message says why."""


# --- writing ----------------------------------------------------------------------------------------------


def record_text(
    plan: Plan,
    digests: Mapping[int, Digests],
    files: Iterable[AdoptedFile],
    structure: DescriptionChecksums = UNKNOWN,
    shards: Shards | None = None,
    companions: Sequence[CopiedSidecar] = (),
) -> str:
    """Write the record of an executed plan. `digests`: checksums by the positions of steps."""
    copied = [asdict(file) | {"crc32c": _hex(file.crc32c)} for file in companions]
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "recipe": {"path": plan.recipe, "sha256": plan.recipe_sha256},
        "params": {param.name: param.text for param in plan.params},
        "sources": [{name: getattr(source, name) for name in _OF_SOURCE} for source in plan.inputs],
        **({} if shards is None else {"shards": asdict(shards)}),
        "leaf_count": len(plan.steps),
        "leaves": [_leaf_json(plan.steps[number].leaf, crcs) for number, crcs in digests.items()],
        "files": [_file_json(file) for file in files],
        **({"companions": copied} if copied else {}),
        "structure": {
            "crc32c": _hex(structure.crc),
            "documents": {name: [length, _hex(crc)] for name, (length, crc) in structure.documents.items()},
        },
    }
    return _text(document)


def record_length(plan: Plan, shards: Shards | None = None, companions: bool = False) -> int:
    """Length in bytes of a plan's record inside a JSON document, if no file is linked.

    `companions`: whether config files may be copied along. Which ones does not matter: a resumed run has to
    reserve the same number as the one before.
    """
    expected = ((number, expected_digests(step)) for number, step in enumerate(plan.steps))
    digests = {number: crcs for number, crcs in expected if crcs is not None}
    text = record_text(plan, digests, (), shards=shards)
    return len(json.dumps(text)) - 2 + (SIDECAR_ROOM if companions else 0)  # without the quotes


def expected_digests(step: Step) -> Digests | None:
    """Digests of a step's regions with 0 for each; None if it will have none."""
    if step.stored is not None:
        return Digests(step.stored.chunk_shape, False, dict.fromkeys(step.stored.chunks, 0))
    if step.cut is None or not step.leaf.nbytes:
        return None
    counts = grid_counts(step.value.spec.shape, step.cut.block)
    return Digests(step.cut.block, True, dict.fromkeys(_indices(counts), 0))


def add_digests(record: Record, leaves: Mapping[str, Leaf], more: Mapping[str, Digests]) -> str:
    """Add checksums of more leaves to a record; returns its text. `more` is by the texts of keys."""
    entries = [_leaf_json(leaves[key], digests) for key, digests in more.items()]
    return _text({**record.document, "leaves": [*record.document["leaves"], *entries]})


def _text(document: Mapping[str, Any]) -> str:
    """Serialize the document with the checksum of all else."""
    return _json({**document, SEAL: _seal(document)})


def _seal(document: Mapping[str, Any]) -> str:
    bare = {name: value for name, value in document.items() if name != SEAL}
    return _hex(bytes_crc(_json(bare).encode()))


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _hex(crc: int | None) -> str:
    return NONE if crc is None else f"{crc:08x}"


def _leaf_json(leaf: Leaf, digests: Digests) -> dict[str, Any]:
    assert leaf.spec is not None
    indices = _indices(grid_counts(leaf.spec.shape, digests.grid))
    crcs = "".join(_hex(digests.crcs.get(index)) for index in indices)
    of = "values" if digests.of_values else "stored"
    return {"key": leaf.key.text, "grid": list(digests.grid), "of": of, "crc32c": crcs}


def _file_json(file: AdoptedFile) -> dict[str, Any]:
    numbers = {"size": file.size, "mtime_ns": file.modified}
    crcs = {"crc32c": file.crc32c, "sample": file.sample}
    known = {name: _hex(crc) for name, crc in crcs.items() if crc is not None}
    return {"name": file.name, "source": file.source, "how": file.how.value, **numbers, **known}


def _indices(counts: Shape) -> Iterable[Shape]:
    return itertools.product(*map(range, counts))


# --- reading ----------------------------------------------------------------------------------------------


def load_record(source: Source) -> Record | None:
    """Read the record of an open checkpoint; None if it has none.

    Raises Malformed if it cannot be understood, SourceError if it cannot be read.
    """
    text = read_record_of(source)
    return None if text is None else parse_record(text)


def parse_record(text: str) -> Record:
    """Parse the text of a record. Raises Malformed."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise Malformed(f"its schema is {document['schema']!r}: a newer version of this program wrote it")
        if document[SEAL] != _seal(document):
            raise Malformed("its checksum is not that of its text")
        grids = {entry["key"]: _grid(entry) for entry in document["leaves"]}
        files = tuple(map(_file, document["files"]))
        structure = UNKNOWN
        if document["version"] == VERSION:
            described = document["structure"]
            listed = described["documents"].items()
            documents = {str(name): (_integer(length), int(crc, 16)) for name, (length, crc) in listed}
            structure = DescriptionChecksums(_crc(described["crc32c"]), documents)
        companions = tuple(
            CopiedSidecar(str(file["name"]), _integer(file["size"]), int(file["crc32c"], 16))
            for file in document.get("companions", ())
        )
        return Record(document, _integer(document["leaf_count"]), grids, files, structure, companions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"it is damaged ({type(error).__name__}: {error})") from error


def _grid(entry: Mapping[str, Any]) -> tuple[Shape, bool, str]:
    grid, of, crcs = tuple(map(_integer, entry["grid"])), entry["of"], entry["crc32c"]
    if of not in ("values", "stored") or not isinstance(crcs, str) or not all(n > 0 for n in grid):
        raise ValueError(f"the entry of {entry['key']!r}")
    return grid, of == "values", crcs


def _file(entry: Mapping[str, Any]) -> AdoptedFile:
    how, size, modified = LinkMode(entry["how"]), _integer(entry["size"]), _integer(entry["mtime_ns"])
    crc, sample = (_crc(entry.get(name, NONE)) for name in ("crc32c", "sample"))
    return AdoptedFile(str(entry["name"]), str(entry["source"]), how, size, modified, crc, sample=sample)


def _crc(text: str) -> int | None:
    return None if text == NONE else int(text, 16)


def _integer(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def digests_of(grid: Shape, of_values: bool, crcs: str, shape: Shape) -> Digests | None:
    """Parse the checksums of an array; None if they belong to another shape."""
    if len(grid) != len(shape):
        return None
    texts = [crcs[at : at + DIGITS] for at in range(0, len(crcs), DIGITS)]
    counts = grid_counts(shape, grid)
    if len(texts) != math.prod(counts):  # checked first: `_indices` takes memory for all places along an axis
        return None
    entries = zip(_indices(counts), texts, strict=True)
    try:
        return Digests(grid, of_values, {index: int(text, 16) for index, text in entries if text != NONE})
    except ValueError:
        return None
