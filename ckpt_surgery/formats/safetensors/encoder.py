"""Leaves that safetensors can hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import EncoderDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Limits, SinkOptions
from ckpt_surgery.formats.safetensors import MOST_HEADER_BYTES, PREFIX_BYTES
from ckpt_surgery.formats.safetensors.header import CODES, METADATA, header_bytes
from ckpt_surgery.formats.safetensors.layout import metadata_texts, tensors_by_file
from ckpt_surgery.formats.unsupported import LimitedEncoder, quoted, repeated_keys, wrong_keys

ENTRY_BYTES = 120
"""Upper bound of a tensor's entry in a header, without its name and the digits of its shape."""


LIMITS = Limits(("safetensors holds plain arrays", "safetensors cannot store"), CODES)


def encoder(options: SinkOptions) -> LimitedEncoder:
    """The encoder. Raises UsageError for shards of one file, and metadata that is not JSON."""
    if options.shard_size is not None and options.shard_size <= 0:
        raise UsageError(f"A shard of {options.shard_size} bytes holds nothing", hint="Give a larger size.")
    if options.shard_size is not None and options.file_name is not None:
        raise UsageError(
            f"{shown(options.file_name)} is one file, which cannot have shards",
            hint="Name a directory, or leave out `shard_size=SIZE`.",
        )
    long_headers = partial(_long_headers, metadata_texts(options), options.shard_size)
    return LimitedEncoder(
        replace(LIMITS, more=(_names_of_metadata, wrong_keys, repeated_keys, long_headers)),
        EncoderDetails(holds_config=options.file_name is None, reserves_record=True),
    )


def _names_of_metadata(leaves: Sequence[Leaf]) -> Iterator[str]:
    for leaf in leaves:
        if leaf.key.text == METADATA:
            yield f"{quoted(leaf)} is what safetensors calls its metadata; rename it."


def _long_headers(
    metadata: Mapping[str, str], shard_size: int | None, leaves: Sequence[Leaf]
) -> Iterator[str]:
    """Checkpoints with so many leaves that a header would be longer than the format allows."""
    bound = sum(6 * (len(k) + len(v)) + 6 for k, v in metadata.items()) + sum(map(_entry_bound, leaves))
    if bound <= MOST_HEADER_BYTES:
        return
    files = tensors_by_file([leaf for leaf in leaves if leaf.spec is not None], shard_size)
    longest = max(len(header_bytes(tensors, metadata)) for tensors in files) - PREFIX_BYTES
    if longest > MOST_HEADER_BYTES:
        yield (
            f"{len(leaves)} leaves need a header of {longest} bytes, and safetensors allows "
            f"{MOST_HEADER_BYTES}; spread them over several files, by giving a shard size."
        )


def _entry_bound(leaf: Leaf) -> int:
    """Upper bound of bytes in a header: a character takes six (`\\u0000`), a dimension twenty."""
    ndim = 0 if leaf.spec is None else leaf.spec.ndim
    return 6 * len(leaf.key.text) + 20 * ndim + ENTRY_BYTES
