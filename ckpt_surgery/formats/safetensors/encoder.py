"""What safetensors can hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.safetensors.detect import MOST_HEADER_BYTES, PREFIX_BYTES
from ckpt_surgery.formats.safetensors.header import CODES, METADATA, header_bytes
from ckpt_surgery.formats.safetensors.layout import metadata_texts, tensors_by_file
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.unsupported import (
    quoted,
    repeated_keys,
    wrong_dtypes,
    wrong_keys,
    wrong_kinds,
)
from ckpt_surgery.storage.regions import are_contiguous

ENTRY_BYTES = 120
"""Upper bound of a tensor's entry in a header, without its name and the digits of its shape."""


@dataclass(frozen=True)
class SafetensorsEncoder(Encoder):
    """Plain arrays, in one file or in shards."""

    metadata: Mapping[str, str]
    shard_size: int | None
    """Bytes of tensors per file at most; None: one file."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why safetensors cannot hold these leaves, one sentence each; empty: it can."""
        return [
            *wrong_kinds(leaves, (LeafKind.STRING, LeafKind.PRNG_KEY), "safetensors holds plain arrays"),
            *wrong_dtypes(leaves, CODES, "safetensors cannot store"),
            *(f"{quoted(x)} is what safetensors calls its metadata; rename it." for x in _metadata(leaves)),
            *wrong_keys(leaves),
            *repeated_keys(leaves),
        ] or self._long_headers(leaves)

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether the stored bytes, one chunk after another, are the tensor's."""
        return leaf.spec is not None and are_contiguous(manifest)

    def _long_headers(self, leaves: Sequence[Leaf]) -> list[str]:
        metadata = sum(6 * (len(k) + len(v)) + 6 for k, v in self.metadata.items())
        if metadata + sum(map(_entry_bound, leaves)) <= MOST_HEADER_BYTES:
            return []
        files = tensors_by_file(leaves, self.shard_size)
        longest = max(len(header_bytes(tensors, self.metadata)) for tensors in files) - PREFIX_BYTES
        if longest <= MOST_HEADER_BYTES:
            return []
        return [
            f"{len(leaves)} leaves need a header of {longest} bytes, and safetensors allows "
            f"{MOST_HEADER_BYTES}; spread them over several files, by giving a shard size."
        ]


def _metadata(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Leaves that have the name of the metadata."""
    return [leaf for leaf in leaves if leaf.key.text == METADATA]


def _entry_bound(leaf: Leaf) -> int:
    """Upper bound of bytes in a header: a character takes six (`\\u0000`), a dimension twenty."""
    ndim = 0 if leaf.spec is None else leaf.spec.ndim
    return 6 * len(leaf.key.text) + 20 * ndim + ENTRY_BYTES


def safetensors_encoder(options: SinkOptions) -> SafetensorsEncoder:
    """The encoder. Raises UsageError for a step, an item, shards of one file, metadata that is not JSON."""
    check_no_choice("safetensors checkpoints have", options.step, options.item, "dst_")
    if options.shard_size is not None and options.shard_size <= 0:
        raise UsageError(f"A shard of {options.shard_size} bytes holds nothing", hint="Give a larger size.")
    if options.shard_size is not None and options.file_name is not None:
        raise UsageError(
            f"{shown(options.file_name)} is one file, which cannot have shards",
            hint="Name a directory, or leave out `shard_size=SIZE`.",
        )
    return SafetensorsEncoder(metadata_texts(options), options.shard_size)
