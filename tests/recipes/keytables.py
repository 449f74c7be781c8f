"""The names, shapes and dtypes in the files of published models, as `make_keytables` made them."""

import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "keytables" / "published"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in FOLDER.iterdir())
"""Every published model that has a table."""


@dataclass(frozen=True)
class KeyTable:
    """A published model without its numbers."""

    config: Mapping[str, Any]
    """What its config.json says."""
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    """Dtype and shape by name."""

    @property
    def listing(self) -> dict[str, str]:
        """`dtype[shape]` by name."""
        return {name: f"{d}[{','.join(map(str, shape))}]" for name, (d, shape) in self.tensors.items()}


@cache
def keytable(name: str) -> KeyTable:
    """The table of a published model, such as `llama3.1-8b`."""
    document = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    tensors = {key: (dtype, tuple(shape)) for key, (dtype, shape) in document["tensors"].items()}
    return KeyTable(document["config"], tensors)
