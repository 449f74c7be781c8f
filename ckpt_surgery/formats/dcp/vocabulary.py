"""The names that the pickle `.metadata` can use: dtypes, and classes whose instances become records.

Source of the format: what torch.distributed.checkpoint (2.2 to 2.13) pickles, read off its files and classes,
and what Megatron-LM's planner adds.
"""

from collections.abc import Mapping
from typing import Any

from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.torch.globals import (
    DTYPES,
    Unsupported,
    Vocabulary,
    ordered_dict,
    size,
    what_is,
)
from ckpt_surgery.storage.failures import damaged

_CHECKPOINT = "torch.distributed.checkpoint"
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"
"""Module of the properties of tensors up to torch 2.2."""

TENSOR = f"{_CHECKPOINT}.metadata.TensorStorageMetadata"
OBJECT = f"{_CHECKPOINT}.metadata.BytesStorageMetadata"
CHUNK = f"{_CHECKPOINT}.metadata.ChunkStorageMetadata"
INDEX = f"{_CHECKPOINT}.metadata.MetadataIndex"
PLACE = f"{_CHECKPOINT}.filesystem._StorageInfo"
PROPERTIES = (f"{_CHECKPOINT}.metadata.TensorProperties", f"{_SHARDED}.TensorProperties")
ROOTS = (
    f"{_CHECKPOINT}.metadata.Metadata",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
)
_UNUSED = (
    f"{_CHECKPOINT}.metadata.StorageMeta",
    f"{_CHECKPOINT}.filesystem._StoragePrefix",
    # Megatron-LM keeps the plans of all ranks, to save the next time without making them again.
    f"{_CHECKPOINT}.planner.SavePlan",
    f"{_CHECKPOINT}.planner.WriteItem",
    f"{_CHECKPOINT}.planner.TensorWriteData",
)
"""Classes whose instances are not looked at."""
_ENUMS = (
    f"{_CHECKPOINT}.metadata._MEM_FORMAT_ENCODING",
    f"{_SHARDED}.MEM_FORMAT_ENCODING",
    f"{_CHECKPOINT}.planner.WriteItemType",
)
_PATHS = tuple(
    f"{module}.{kind}Path" for module in ("pathlib", "pathlib._local") for kind in ("Posix", "Windows")
)


def _layout(arguments: tuple[Any, ...]) -> object:
    """The layout of a tensor, which DCP stores with strides."""
    match arguments:
        case ("torch.strided",):
            return Unsupported("a layout of tensors")
        case (str(name),):
            raise damaged(f"a tensor has the layout `{shown(name[:200])}`; only `torch.strided` is read")
    raise damaged("a layout is not made of its name")


def _enum(arguments: tuple[Any, ...]) -> object:
    """A member of an enumeration that no value depends on."""
    match arguments:
        case (int(),):
            return Unsupported("a member of an enumeration")
    raise damaged("a member of an enumeration is not made of its number")


def _path(arguments: tuple[Any, ...]) -> object:
    """The directory that a checkpoint was written to, which it need not lie in any more."""
    if all(type(part) is str for part in arguments):
        return Unsupported("a path")
    raise damaged("a path is not made of texts")


def _persistent(identifier: object) -> object:
    raise damaged(f"it asks for {what_is(identifier)} outside of it, which no metadata is")


_CALLS: Mapping[str, Any] = {
    "torch.Size": size,
    "collections.OrderedDict": ordered_dict,
    "torch.serialization._get_layout": _layout,
    **dict.fromkeys(_ENUMS, _enum),
    **dict.fromkeys(_PATHS, _path),
}
VOCABULARY = Vocabulary(
    values=DTYPES,
    calls=_CALLS,
    classes=(),
    records=(TENSOR, OBJECT, CHUNK, INDEX, PLACE, *PROPERTIES, *ROOTS, *_UNUSED),
    persistent=_persistent,
    of="metadata of checkpoints",
    most_instructions=2**25,
)
"""A chunk takes about 60 instructions."""
