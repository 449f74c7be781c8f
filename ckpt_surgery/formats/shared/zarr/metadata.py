"""Zarr array metadata, versions 2 and 3: its text becomes spec, chunk grid, codec, and names of chunks.

Sources: the zarr v2 and v3 specifications, and TensorStore's `zarr` and `zarr3` drivers for the
data types beyond them (bfloat16, float8, int4, …).
"""

import contextlib
import functools
import itertools
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape, grid_counts
from ckpt_surgery.core.dtypes import DTYPES, NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, encoding_of
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.zarr.layout import DRIVERS, FILE_NAMES
from ckpt_surgery.formats.shared.zarr.shards import SHARDS, least_bytes
from ckpt_surgery.storage.failures import damaged

EXTENDED = (
    *("bfloat16", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int2", "int4"),
)
"""Types of ml_dtypes that TensorStore stores in both versions under their own names."""
UNKNOWN = "Save the checkpoint again without it, or without this leaf."

HELD = frozenset((*NUMPY_NAMES, *EXTENDED))
"""Names of all types that zarr arrays can have here."""


@dataclass(frozen=True)
class ZarrArray:
    """The metadata of one array, parsed."""

    version: int
    spec: ArraySpec
    chunk_shape: Shape
    codec: Codec
    prefix: str
    """First part of chunk names: `c` in version 3's own encoding, else empty."""
    separator: str
    """Separator of chunk indices in names: `.` or `/`."""
    definition: dict[str, Any]
    """The metadata as the document that was read."""

    @functools.cached_property
    def chunk_nbytes(self) -> int:
        """Bytes of one decoded chunk; stored chunks are always whole, at the edges too."""
        return math.prod(self.chunk_shape) * self.spec.dtype.itemsize

    @functools.cached_property
    def least_bytes(self) -> int:
        """Smallest size of a stored chunk in bytes; a shard can lack chunks inside, but not its index."""
        shard = least_bytes(self.chunk_shape, self.codec)
        # No codec has a higher ratio of decoded to stored bytes; zstd's best is 128 KiB in 4 bytes.
        return -(-self.chunk_nbytes // 40_000) if shard is None else shard

    @functools.cached_property
    def counts(self) -> Shape:
        """Number of chunks along each axis."""
        return grid_counts(self.spec.shape, self.chunk_shape)

    @functools.cached_property
    def chunk_count(self) -> int:
        """Number of chunks in all."""
        return math.prod(self.counts)

    @functools.cached_property
    def fill(self) -> bytes | None:
        """The bytes of an element whose chunk is not stored; None where the metadata has no fill value."""
        value, dtype = self.definition.get("fill_value"), self.definition[_DTYPE_MEMBERS[self.version]]
        return None if value is None else _fill_bytes(self.version, json.dumps(dtype), json.dumps(value))

    def manifest(self, chunks: Mapping[Shape, Chunk], filled: bool) -> Manifest:
        """The manifest of these stored chunks. `filled`: others, also inside shards, have the fill value."""
        filled = filled and (SHARDS in self.codec.encoding or len(chunks) < self.chunk_count)
        return Manifest(self.spec, self.chunk_shape, self.codec, chunks, self.fill if filled else None)

    def chunk_name(self, index: Shape) -> str:
        """The name of a chunk within the array: `0.1`, `c/0/1`; `0` or `c` for a scalar."""
        parts = map(str, index)
        return self.separator.join((self.prefix, *parts) if self.prefix else parts) or "0"


_DTYPE_MEMBERS = {2: "dtype", 3: "data_type"}


@functools.lru_cache(maxsize=1024)
def _fill_bytes(version: int, dtype: str, value: str) -> bytes:
    """The bytes of a fill value as TensorStore reads it."""
    import tensorstore as ts

    about = {"shape": [1], _DTYPE_MEMBERS[version]: json.loads(dtype), "fill_value": json.loads(value)}
    spec = {"driver": DRIVERS[version], "kvstore": "memory://", "metadata": about}
    try:
        array = ts.open(spec, create=True, context=ts.Context()).result()
    except ValueError as error:
        raise damaged(f"its fill value {shown(value[:100])} is not one of {dtype}") from error
    return bytes(np.asarray(array.fill_value).tobytes())


@functools.lru_cache(maxsize=1024)
def fill_value(element: bytes, dtype: np.dtype[Any]) -> Any:
    """An element, given by its bytes in memory, as version 3 spells fill values: floats by their bits.

    None where TensorStore reads no spelling as just these bytes.
    """
    value, size = np.frombuffer(element, dtype)[0].item(), len(element) // (2 if dtype.kind == "c" else 1)
    parts = [element[i : i + size] for i in range(0, len(element), size)]
    bits = [f"0x{int.from_bytes(part, sys.byteorder):0{2 * size}x}" for part in parts]
    spelled = value if isinstance(value, int) else bits if dtype.kind == "c" else bits[0]
    with contextlib.suppress(SourceError):
        if _fill_bytes(3, json.dumps(dtype.name), json.dumps(spelled)) == element:
            return spelled
    return None


@functools.lru_cache(maxsize=1 << 14)
def parse_array(text: bytes, version: int) -> ZarrArray:
    """Parse the text of a `.zarray` (version 2) or `zarr.json` (version 3)."""
    try:
        definition = json.loads(text)
        array = _parse_v2(definition) if version == 2 else _parse_v3(definition)
        if array.separator not in (".", "/"):
            raise ValueError(f"the chunk separator is {array.separator!r}")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        what = f"its {FILE_NAMES[version]} is malformed ({type(error).__name__}: {shown(str(error))})"
        raise damaged(what) from error
    if len(array.chunk_shape) != array.spec.ndim:
        raise damaged(f"it has the shape {array.spec.shape} but chunks of shape {array.chunk_shape}")
    return array


def _sizes(values: Any, least: int) -> Shape:
    if not all(type(n) is int and n >= least for n in values):
        raise ValueError(f"{values} are not sizes")
    return tuple(values)


def _unreadable(what: str) -> SourceError:
    """The error to raise for a feature that is not supported, though others may know it."""
    return SourceError(f"{shown(what[:300])} cannot be read", hint=UNKNOWN)


def _dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in HELD:
        raise _unreadable(f"its data type `{name}`")
    return DTYPES[name]


def _parse_v2(definition: dict[str, Any]) -> ZarrArray:
    compressor, order, dtype = (definition[name] for name in ("compressor", "order", "dtype"))
    if definition["zarr_format"] != 2 or order not in ("C", "F"):
        raise ValueError(f"zarr_format is {definition['zarr_format']}, order is {order}")
    if filters := definition.get("filters"):
        raise _unreadable(f"its filters {json.dumps(filters, sort_keys=True, separators=(',', ':'))}")
    native = isinstance(dtype, str) and dtype[:1] in "<>|"  # `<f4` and the like; others are names
    shape = _sizes(definition["shape"], 0)
    spec = ArraySpec(shape, _dtype(np.dtype(dtype).newbyteorder("=").name if native else dtype))
    axes = tuple(range(spec.ndim))
    chain = [bytes_codec("big" if dtype.startswith(">") and spec.dtype.itemsize > 1 else "little")]
    if compressor is not None:
        chain.append(_codec_of_v2(compressor, spec.dtype))
    name = "raw" if compressor is None else str(compressor["id"])
    codec = Codec(name, axes if order == "C" else axes[::-1], encoding_of(chain))
    separator = definition.get("dimension_separator", ".")
    return ZarrArray(2, spec, _sizes(definition["chunks"], 1), codec, "", separator, definition)


def _parse_v3(definition: dict[str, Any]) -> ZarrArray:
    if definition["zarr_format"] != 3 or definition["node_type"] != "array":
        raise ValueError("it is not a zarr v3 array")
    grid, names, codecs = (definition[name] for name in ("chunk_grid", "chunk_key_encoding", "codecs"))
    if grid["name"] != "regular":
        raise _unreadable(f"its chunk grid `{grid['name']}`")
    if names["name"] not in ("default", "v2"):
        raise _unreadable(f"the encoding `{names['name']}` of its chunks' names")
    for name, value in definition.items():
        optional = isinstance(value, dict) and value.get("must_understand") is False
        if name not in _MEMBERS and not optional and not (name == "storage_transformers" and value == []):
            raise _unreadable(f"the member `{name}` of its metadata")
    native = names["name"] == "default"
    separator = names.get("configuration", {}).get("separator", "/" if native else ".")
    spec = ArraySpec(_sizes(definition["shape"], 0), _dtype(definition["data_type"]))
    _check_axes(codecs, spec.ndim)
    permutation, chain = leading_transposes(codecs, spec.ndim)
    codec = Codec(_chain_name(codecs), permutation, encoding_of([*map(_codec_of_v3, chain)]))
    chunks = _sizes(grid["configuration"]["chunk_shape"], 1)
    return ZarrArray(3, spec, chunks, codec, "c" if native else "", separator, definition)


_MEMBERS = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value"),
    *("codecs", "attributes", "dimension_names"),
}
"""Members of the metadata of arrays in version 3; others have to be understood unless they say otherwise."""


def _chain_name(codecs: list[dict[str, Any]]) -> str:
    """Short name of a chain of codecs, without the plain layout: `zstd+crc32c`, `sharded(zstd)`, `raw`."""
    names = []
    for codec in codecs:
        if codec["name"] == "sharding_indexed":
            names.append(f"sharded({_chain_name(codec['configuration']['codecs'])})")
        elif codec["name"] not in ("bytes", "transpose"):
            names.append(str(codec["name"]))
    return "+".join(names) or "raw"


def _check_axes(codecs: list[dict[str, Any]], ndim: int) -> None:
    """Raise ValueError where a codec, or one inside shards, is for another number of axes."""
    for codec in codecs:
        if codec["name"] == "transpose" and isinstance(order := codec["configuration"]["order"], list):
            if sorted(order) != list(range(ndim)):
                raise ValueError(f"{order} is not an order of {ndim} axes")
        elif codec["name"] == "sharding_indexed":
            if len(_sizes(codec["configuration"]["chunk_shape"], 1)) != ndim:
                raise ValueError(f"shards of {ndim} axes have chunks with another number of axes")
            _check_axes(codec["configuration"]["codecs"], ndim)


def leading_transposes(
    codecs: list[dict[str, Any]], ndim: int
) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
    """All leading transposes as one permutation of the axes, and the codecs after them."""
    axes = tuple(range(ndim))
    transposes = list(itertools.takewhile(lambda codec: codec["name"] == "transpose", codecs))
    permutation = axes
    for codec in transposes:
        order = codec["configuration"]["order"]
        order = {"C": axes, "F": axes[::-1]}[order] if isinstance(order, str) else order
        permutation = tuple(permutation[axis] for axis in order)
    return permutation, codecs[len(transposes) :]


CODECS = {
    2: ("blosc", "bz2", "gzip", "zlib", "zstd"),
    3: ("blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"),
}
"""Codecs that TensorStore's drivers decode, by zarr version."""
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""Blosc's shuffles: names in version 3, numbers from 0 in version 2, where -1 lets the item size decide."""
CHAINS_OF_SHARDS = {"codecs": None, "index_codecs": np.dtype(np.uint64)}
"""Chains of codecs in a shard's configuration, and the dtype that each encodes (None: the array's)."""


def _codec_of_v2(compressor: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """A compressor as version 3 spells it; unchanged, with its `id`, where version 3 does not have it."""
    name = compressor["id"]
    if name not in CODECS[2]:
        raise _unreadable(f"its codec `{name}`")
    if name in ("zstd", "gzip"):
        return {"name": name, "configuration": {"level": compressor.get("level", 1)}}
    if name != "blosc":
        return compressor
    shuffle = compressor.get("shuffle", 1)
    shuffle = (2 if dtype.itemsize == 1 else 1) if shuffle == -1 else shuffle
    configuration = {
        "cname": compressor.get("cname", "lz4"),
        "clevel": compressor.get("clevel", 5),
        "shuffle": dict(enumerate(SHUFFLES))[shuffle],
        "blocksize": compressor.get("blocksize", 0),
    }
    return {"name": name, "configuration": configuration}


def _codec_of_v3(codec: dict[str, Any]) -> dict[str, Any]:
    """A codec without what decoding does not need, because chunks of Blosc and zstd record it themselves."""
    name, configuration = codec["name"], codec.get("configuration", {})
    if name not in CODECS[3]:
        raise _unreadable(f"its codec `{name}`")
    if name == "bytes":
        return bytes_codec(configuration.get("endian", "little"))
    ignored = {"blosc": "typesize", "zstd": "checksum"}.get(name)
    kept = {key: value for key, value in configuration.items() if key != ignored}
    for chain in CHAINS_OF_SHARDS if name == "sharding_indexed" else ():
        if chain in kept:
            kept[chain] = [_codec_of_v3(inner) for inner in kept[chain]]
    return {"name": name} | ({"configuration": kept} if kept else {})
