"""The parts of formats that exist in tests of the registry only, under names that a `Format` can give."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.registry import Format, SinkOptions
from tests.support.memory import MemoryEncoder


def read(path: str, *_: Any) -> Any:
    raise SourceError(f"{os.path.basename(path)} has no wheels")


def encoder(options: SinkOptions) -> MemoryEncoder:
    if options.zarr != 3:
        raise UsageError("it has no zarr")
    return MemoryEncoder(lambda leaves: [f"`{leaf.key.text}` is too heavy" for leaf in leaves])


def open_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> Any:
    return directory, options, outputs


def check_destination(path: Path, options: SinkOptions) -> None:
    if path.name == "river":
        raise UsageError("it cannot swim")


def toy(name: str, **more: Any) -> Format:
    """A format of files with this suffix, and of directories that hold one."""

    def detect(path: PathLike) -> bool:
        path = Path(path)
        return any(path.glob(f"*.{name}")) if path.is_dir() else path.suffix == f".{name}"

    return Format(name, detect, __name__, **more)
