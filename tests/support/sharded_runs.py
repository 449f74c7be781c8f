"""A checkpoint whose conversion has work for many shards, and saved plans that are carried out in shards."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ckpt_surgery
from ckpt_surgery.api import applying
from tests.support.recipes import write_recipe

SUFFIXES = {"orbax": "", "zarr": ".zarr", "safetensors": ".safetensors", "npz": ".npz", "flax": ".msgpack"}
"""What the name of a destination ends in, by its format."""
ARRAYS = {
    "big": np.arange(64 * 512, dtype=np.float32).reshape(64, 512),
    **{f"layer_{i}": np.arange(i, i + 3000, dtype=np.float32).reshape(50, 60) for i in range(30)},
    "ids": np.arange(100),
    "scalar": np.float32(7.5),
}
RECIPE = """\
version: 1
rules:
  - match: layer_(\\d+)
    to: blocks/\\1/w
    value: cast(x * 2, "bfloat16")
  - match: big
    value: transpose(x)
"""


def copy_source(saved: Path, directory: Path) -> Path:
    """Copy the checkpoint of the arrays to `in`; returns a recipe that keeps some of them as they are."""
    shutil.copytree(saved, directory / "in")
    return write_recipe(directory, RECIPE)


def entries(directory: Path) -> list[str]:
    """The names in a directory that are those of runs."""
    return sorted(name for name in os.listdir(directory) if "ckpt-surgery" in name)


@dataclass(frozen=True)
class SavedRun:
    """A saved plan, and the path or the URL of its destination."""

    plan: Path
    dst: str

    @property
    def path(self) -> Path:
        return Path(self.dst)

    @property
    def parts(self) -> Path:
        """Where the parts of a destination on a disk are kept."""
        return self.path.with_name(f".{self.path.name}.ckpt-surgery-parts")

    @property
    def result(self) -> Path:
        """Directory that the sinks of all shards write into."""
        (result,) = self.parts.glob("result-*")
        return result

    def shards(self, numbers: Iterable[int], count: int, **options: Any) -> list[Any]:
        return [
            applying.apply_shard(self.plan, dst=self.dst, shard=f"{number}/{count}", **options)
            for number in numbers
        ]

    def commit(self, **options: Any) -> Any:
        return applying.commit(self.dst, **options)

    def alone(self) -> Path:
        """What one machine writes by this plan, beside it."""
        beside = self.plan.with_name(f"alone{self.path.suffix}")
        return Path(ckpt_surgery.apply(self.plan, dst=beside).destination)

    def wrote_the_same_as(self, alone: Path) -> bool:
        return not ckpt_surgery.diff(alone, self.dst, values=True).different

    def keys(self) -> list[str]:
        """Those of the checkpoint at the destination."""
        return [leaf.key.text for leaf in ckpt_surgery.inspect(self.dst).leaves]
