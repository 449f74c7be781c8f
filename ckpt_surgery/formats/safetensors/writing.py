"""Writing safetensors: leaves that it can hold, and the layout of one file, or of shards and their index."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.history import RECORD
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import EncoderDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import safetensors
from ckpt_surgery.formats.plain_files import LimitedEncoder, quoted, repeated_keys, wrong_keys
from ckpt_surgery.formats.registry import FilePlan, Limits, SinkOptions
from ckpt_surgery.formats.safetensors.source import CODES, METADATA, TensorEntry
from ckpt_surgery.storage.record_files import RECORD_NAME
from ckpt_surgery.storage.regions import Pieces, PlacedArray

Tensors = tuple[TensorEntry, ...]


def layout(leaves: Sequence[Leaf], options: SinkOptions) -> list[FilePlan]:
    """`model.safetensors`, or `options.file_name`; or shards and `model.safetensors.index.json`."""
    metadata, groups = metadata_texts(options), tensors_by_file(leaves, options.shard_size)
    if len(groups) == 1:
        name = options.file_name or safetensors.SINGLE_NAME
        return [_only_file(name, groups[0], metadata, options.record_bytes)]
    numbered = enumerate(groups, 1)
    shards = {f"model-{i:05d}-of-{len(groups):05d}.safetensors": tensors for i, tensors in numbered}
    files = [_file(name, tensors, header_bytes(tensors, metadata)) for name, tensors in shards.items()]
    weights = {tensor.name: file for file, tensors in shards.items() for tensor in tensors}
    about = {"metadata": {"total_size": sum(map(_data_bytes, groups))}, "weight_map": weights}
    index = (json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    return [*files, FilePlan(safetensors.INDEX_NAME, len(index), [(0, index)])]


def _only_file(name: str, tensors: Tensors, metadata: Mapping[str, str], record_bytes: int) -> FilePlan:
    """The file, with room in its header for a record of so many bytes unless that would be too long."""

    def with_record(text: str, least: int = 0) -> bytes:
        return header_bytes(tensors, {**safetensors.READERS_EXPECT, **metadata, RECORD_NAME: text}, least)

    def record(text: str) -> Pieces | None:
        recorded = with_record(text, len(header))
        return [(0, recorded)] if len(recorded) == len(header) else None

    room = len(with_record(" " * record_bytes)) if record_bytes else 0
    most = safetensors.PREFIX_BYTES + safetensors.MOST_HEADER_BYTES
    header = header_bytes(tensors, metadata, room if room <= most else 0)
    return _file(name, tensors, header, record)


def _file(
    name: str, tensors: Tensors, header: bytes, record: Callable[[str], Pieces | None] | None = None
) -> FilePlan:
    start, size = len(header), _data_bytes(tensors)
    arrays = {t.name: PlacedArray(t.spec, ((start + t.start, t.stop - t.start),)) for t in tensors}
    return FilePlan(name, start + size, [(0, header)], arrays, record=record)


def header_bytes(tensors: Iterable[TensorEntry], metadata: Mapping[str, str], least: int = 0) -> bytes:
    """The length and the header of a file, padded to a multiple of 8 bytes, and to `least` bytes in all."""
    about: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for tensor in tensors:
        code, offsets = CODES[tensor.spec.dtype], [tensor.start, tensor.stop]
        about[tensor.name] = {"dtype": code, "shape": list(tensor.spec.shape), "data_offsets": offsets}
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * max(-len(text) % safetensors.PREFIX_BYTES, least - safetensors.PREFIX_BYTES - len(text))
    return len(text).to_bytes(safetensors.PREFIX_BYTES, "little") + text


def _data_bytes(tensors: Tensors) -> int:
    return tensors[-1].stop if tensors else 0


def tensors_by_file(leaves: Sequence[Leaf], shard_size: int | None) -> list[Tensors]:
    """The tensors of each file of a checkpoint. The files are filled in the order of the leaves.

    `shard_size`: bytes of tensors per file at most, though a larger tensor has a file of its own. None: one
    file.
    """
    most = math.inf if shard_size is None else shard_size
    groups: list[list[Leaf]] = [[]]
    room = most
    for leaf in leaves:
        assert leaf.spec is not None
        if leaf.spec.nbytes > room and groups[-1]:
            groups.append([])
            room = most
        room -= leaf.spec.nbytes
        groups[-1].append(leaf)
    return [_placed(group) for group in groups]


def _placed(leaves: Iterable[Leaf]) -> Tensors:
    """The tensors of one file, widest elements first: each begins at a multiple of its element's size."""
    placed: list[TensorEntry] = []
    end = 0
    for leaf in sorted(leaves, key=lambda leaf: -leaf.spec.dtype.itemsize if leaf.spec else 0):
        assert leaf.spec is not None
        placed.append(TensorEntry(leaf.key.text, leaf.spec, end, end + leaf.spec.nbytes))
        end = placed[-1].stop
    return tuple(placed)


def metadata_texts(options: SinkOptions) -> dict[str, str]:
    """The custom metadata as texts or JSON; with a history, what readers expect too. Raises UsageError."""
    try:
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.metadata.items()}
        "".join((*texts, *texts.values())).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"The custom metadata cannot be stored as text: {error}") from error
    return {**safetensors.READERS_EXPECT, **texts} if RECORD in texts else texts


ENTRY_BYTES = 120
"""Upper bound of a tensor's entry in a header, without its name and the digits of its shape."""


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for shards of one file, and metadata that is not JSON."""
    if options.shard_size is not None and options.shard_size <= 0:
        raise UsageError(f"A shard of {options.shard_size} bytes holds nothing", hint="Give a larger size.")
    if options.shard_size is not None and options.file_name is not None:
        what = f"{shown(options.file_name)} is one file, which cannot have shards"
        raise UsageError(what, hint="Name a directory, or leave out `shard_size=SIZE`.")
    problems = partial(_problems, metadata_texts(options), options.shard_size)
    words = ("safetensors holds plain arrays", "safetensors cannot store")
    return LimitedEncoder(
        Limits(words, CODES, more=(wrong_keys, repeated_keys, problems)),
        EncoderDetails(holds_config=options.file_name is None, reserves_record=True),
    )


def _problems(metadata: Mapping[str, str], shard_size: int | None, leaves: Sequence[Leaf]) -> Iterator[str]:
    """A leaf with the name of the metadata, and so many leaves that a header would be longer than allowed."""
    for leaf in leaves:
        if leaf.key.text == METADATA:
            yield f"{quoted(leaf)} is what safetensors calls its metadata; rename it."
    # An upper bound tells most: a character takes six bytes (`\u0000`), a dimension twenty.
    lengths = (6 * len(leaf.key.text) + 20 * (leaf.spec.ndim if leaf.spec else 0) for leaf in leaves)
    bound = sum(6 * (len(k) + len(v)) + 6 for k, v in metadata.items()) + sum(lengths)
    if bound + ENTRY_BYTES * len(leaves) <= safetensors.MOST_HEADER_BYTES:
        return
    files = tensors_by_file([leaf for leaf in leaves if leaf.spec is not None], shard_size)
    longest = max(len(header_bytes(tensors, metadata)) for tensors in files) - safetensors.PREFIX_BYTES
    if longest > safetensors.MOST_HEADER_BYTES:
        header = f"a header of {longest} bytes, and safetensors allows {safetensors.MOST_HEADER_BYTES}"
        yield f"{len(leaves)} leaves need {header}; spread them over several files, by giving a shard size."
