"""Zarr array metadata, versions 2 and 3: text → spec, chunk grid, codec, names of chunks.

Sources: the zarr v2 and v3 specifications, and TensorStore's `zarr` and `zarr3` drivers for the
data types beyond them (bfloat16, float8, int4, …).
"""

import functools
import json
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.arrays import ArraySpec, Codec, Shape
from ckpt_surgery.errors import SourceError
from ckpt_surgery.formats.files import DAMAGED
from ckpt_surgery.keys import shown

EXTENDED = (
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
    "int2",
    "int4",
)
"""ml_dtypes' types that TensorStore stores in both versions under their own names."""
NATIVE = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
FILE_NAMES = {2: ".zarray", 3: "zarr.json"}
"""Name of the metadata within an array, by zarr version."""

UNKNOWN = "Save the checkpoint again without it, or leave this leaf out where it was written."

_DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in NATIVE} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in EXTENDED
}


@dataclass(frozen=True)
class ZarrArray:
    """One array's metadata, understood."""

    version: int
    spec: ArraySpec
    chunk_shape: Shape
    codec: Codec
    prefix: str
    """Before the chunk indices in a chunk's name: `c` in version 3's own encoding, else empty."""
    separator: str
    """Between the chunk indices: `.` or `/`."""
    definition: dict[str, Any]
    """The metadata as it was read."""

    @property
    def raw(self) -> bool:
        """Stored chunks are the elements and nothing else."""
        return self.codec.name == "raw"

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of one decoded chunk; stored chunks are always whole, at the edges too."""
        return math.prod(self.chunk_shape) * self.spec.dtype.itemsize

    def chunk_name(self, index: Shape) -> str:
        """The name of a chunk within the array: `0.1`, `c/0/1`; `0` or `c` for a scalar."""
        if not index:
            return self.prefix or "0"
        digits = self.separator.join(map(str, index))
        return f"{self.prefix}{self.separator}{digits}" if self.prefix else digits


@functools.lru_cache(maxsize=1 << 14)
def parse_array(text: bytes, version: int) -> ZarrArray:
    """Understand the text of a `.zarray` (version 2) or `zarr.json` (version 3).

    Raises SourceError where it is malformed or uses what cannot be read.
    """
    try:
        definition = json.loads(text)
        array = _parse_v2(definition) if version == 2 else _parse_v3(definition)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise SourceError(
            f"its {FILE_NAMES[version]} is malformed ({type(error).__name__}: {shown(str(error))})",
            hint=DAMAGED,
        ) from error
    if len(array.chunk_shape) != array.spec.ndim:
        raise SourceError(
            f"it has the shape {array.spec.shape} but chunks of shape {array.chunk_shape}", hint=DAMAGED
        )
    return array


def _sizes(values: Any, least: int) -> Shape:
    if not all(type(n) is int and n >= least for n in values):
        raise ValueError(f"{values} are not sizes")
    return tuple(values)


def _dtype(name: str) -> np.dtype[Any]:
    if name not in _DTYPES:
        raise SourceError(f"its data type `{shown(str(name))}` cannot be read", hint=UNKNOWN)
    return _DTYPES[name]


def _v2_dtype(text: Any) -> np.dtype[Any]:
    """`<f4` and the like in native byte order, or an extended type by name."""
    if isinstance(text, str) and text[:1] in "<>|":
        return _dtype(np.dtype(text).newbyteorder("=").name)
    return _dtype(text if isinstance(text, str) else json.dumps(text))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _parse_v2(definition: dict[str, Any]) -> ZarrArray:
    if definition["zarr_format"] != 2:
        raise ValueError(f"zarr_format is {definition['zarr_format']}")
    compressor, filters, order = definition["compressor"], definition.get("filters"), definition["order"]
    if order not in ("C", "F"):
        raise ValueError(f"order is {order}")
    if filters:
        raise SourceError(
            f"it uses zarr filters, which cannot be read: {shown(_canonical(filters))}", hint=UNKNOWN
        )
    encoding = {key: definition[key] for key in ("dtype", "compressor", "order")} | {"zarr_format": 2}
    return ZarrArray(
        version=2,
        spec=ArraySpec(_sizes(definition["shape"], 0), _v2_dtype(definition["dtype"])),
        chunk_shape=_sizes(definition["chunks"], 1),
        codec=Codec("raw" if compressor is None else str(compressor["id"]), order, _canonical(encoding)),
        prefix="",
        separator=_separator(definition.get("dimension_separator", ".")),
        definition=definition,
    )


def _separator(text: Any) -> str:
    if text not in (".", "/"):
        raise ValueError(f"the chunk separator is {text!r}")
    return str(text)


def _parse_v3(definition: dict[str, Any]) -> ZarrArray:
    if definition["zarr_format"] != 3 or definition["node_type"] != "array":
        raise ValueError("it is not a zarr v3 array")
    if definition["chunk_grid"]["name"] != "regular":
        raise SourceError(f"its chunk grid `{definition['chunk_grid']['name']}` cannot be read", hint=UNKNOWN)
    encoding = definition["chunk_key_encoding"]
    native = encoding["name"] == "default"
    if not native and encoding["name"] != "v2":
        raise SourceError(
            f"its chunk names are encoded as `{encoding['name']}`, which cannot be read", hint=UNKNOWN
        )
    separator = encoding.get("configuration", {}).get("separator", "/" if native else ".")
    dtype, codecs = _dtype(definition["data_type"]), definition["codecs"]
    return ZarrArray(
        version=3,
        spec=ArraySpec(_sizes(definition["shape"], 0), dtype),
        chunk_shape=_sizes(definition["chunk_grid"]["configuration"]["chunk_shape"], 1),
        codec=Codec(
            _chain_name(codecs),
            _chain_order(codecs),
            _canonical({"codecs": codecs, "data_type": definition["data_type"], "zarr_format": 3}),
        ),
        prefix="c" if native else "",
        separator=_separator(separator),
        definition=definition,
    )


def _chain_name(codecs: list[dict[str, Any]]) -> str:
    """`zstd+crc32c`, `sharded(zstd)`, `raw`: what is not the plain layout of elements."""
    names = []
    for codec in codecs:
        if codec["name"] == "sharding_indexed":
            names.append(f"sharded({_chain_name(codec['configuration']['codecs'])})")
        elif codec["name"] not in ("bytes", "transpose"):
            names.append(str(codec["name"]))
    return "+".join(names) or "raw"


def _chain_order(codecs: list[dict[str, Any]]) -> str:
    """F where the axes are stored reversed. Other permutations show in the definition only."""
    for codec in codecs:
        if codec["name"] == "transpose":
            order = codec["configuration"]["order"]
            return "F" if order == "F" or order == list(range(len(order)))[::-1] else "C"
    return "C"
