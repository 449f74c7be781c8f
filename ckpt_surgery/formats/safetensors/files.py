"""Which tensor of a new safetensors checkpoint goes into which file, and where."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.safetensors.detect import SINGLE_NAME
from ckpt_surgery.formats.safetensors.header import TensorEntry, stored_bytes

SHARD_NAME = "model-{:05d}-of-{:05d}.safetensors"


@dataclass(frozen=True)
class FilePlan:
    """One file to be written."""

    name: str
    tensors: tuple[TensorEntry, ...]

    @property
    def data_bytes(self) -> int:
        return self.tensors[-1].stop if self.tensors else 0


def plan_files(leaves: Sequence[Leaf], shard_size: int | None, single: str = SINGLE_NAME) -> list[FilePlan]:
    """The files of a checkpoint, which are filled in the order of the leaves.

    `shard_size`: bytes of tensors per file at most, though a larger tensor has a file of its own. None: one
    file. `single`: the file's name where there is only one.
    """
    groups: list[list[Leaf]] = [[]]
    room = shard_size
    for leaf in leaves:
        assert leaf.spec is not None
        size = stored_bytes(leaf.spec)
        if room is not None and shard_size is not None:
            if size > room and groups[-1]:
                groups.append([])
                room = shard_size
            room -= size
        groups[-1].append(leaf)
    if len(groups) == 1:
        return [FilePlan(single, _placed(groups[0]))]
    return [FilePlan(SHARD_NAME.format(i, len(groups)), _placed(g)) for i, g in enumerate(groups, 1)]


def _placed(leaves: Iterable[Leaf]) -> tuple[TensorEntry, ...]:
    """The tensors of one file, those with the widest elements first.

    In this way every tensor begins at a multiple of its element's size.
    """
    placed: list[TensorEntry] = []
    end = 0
    for leaf in sorted(leaves, key=lambda leaf: -leaf.spec.dtype.itemsize if leaf.spec else 0):
        assert leaf.spec is not None
        placed.append(TensorEntry(leaf.key.text, leaf.spec, end, end + stored_bytes(leaf.spec)))
        end = placed[-1].stop
    return tuple(placed)
