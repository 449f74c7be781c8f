"""Zarr array metadata, versions 2 and 3: text → spec, chunk grid, codec, names of chunks; and back.

Sources: the zarr v2 and v3 specifications, and TensorStore's `zarr` and `zarr3` drivers for the
data types beyond them (bfloat16, float8, int4, …).
"""

import functools
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import (
    ArraySpec,
    Shape,
    grid_counts,
)
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import (
    Codec,
    Manifest,
    bytes_codec,
    encoding_of,
    long_axes,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.zarr_layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr_shards import least_bytes
from ckpt_surgery.storage.listing import DAMAGED

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

HIGHEST_RATIO = 40_000
"""Decoded over stored bytes that no codec exceeds (zstd's best is 128 KiB in 4 bytes)."""

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

    @functools.cached_property
    def raw(self) -> bool:
        """Stored chunks are the elements and nothing else."""
        return self.codec.name == "raw"

    @functools.cached_property
    def chunk_nbytes(self) -> int:
        """Bytes of one decoded chunk; stored chunks are always whole, at the edges too."""
        return math.prod(self.chunk_shape) * self.spec.dtype.itemsize

    @functools.cached_property
    def least_bytes(self) -> int:
        """What a stored chunk takes at least: shards may lack all that they are to hold, but no index."""
        shard = least_bytes(self.chunk_shape, self.codec)
        return -(-self.chunk_nbytes // HIGHEST_RATIO) if shard is None else shard

    @functools.cached_property
    def counts(self) -> Shape:
        """How many chunks there are along each axis."""
        return grid_counts(self.spec.shape, self.chunk_shape)

    @functools.cached_property
    def chunk_count(self) -> int:
        """How many chunks there are in all."""
        return math.prod(self.counts)

    @functools.cached_property
    def first_chunk(self) -> tuple[tuple[Shape, str], ...]:
        """Index and name of the chunk at the origin, of most arrays the only one."""
        origin = (0,) * self.spec.ndim
        return ((origin, self.chunk_name(origin)),)

    def chunk_names(self) -> Iterator[tuple[Shape, str]]:
        """Index and name of every chunk, in C order."""
        indices = itertools.product(*map(range, self.counts)) if self.chunk_count else ()
        return ((index, self.chunk_name(index)) for index in indices)

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


def _dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in _DTYPES:
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
    spec = ArraySpec(_sizes(definition["shape"], 0), _v2_dtype(definition["dtype"]))
    axes = tuple(range(spec.ndim))
    big = str(definition["dtype"]).startswith(">") and spec.dtype.itemsize > 1
    chain = [bytes_codec("big" if big else "little")]
    chain += [] if compressor is None else [_codec_of_v2(compressor, spec.dtype)]
    return ZarrArray(
        version=2,
        spec=spec,
        chunk_shape=_sizes(definition["chunks"], 1),
        codec=Codec(
            "raw" if compressor is None else str(compressor["id"]),
            axes if order == "C" else axes[::-1],
            encoding_of(chain),
        ),
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
    spec = ArraySpec(_sizes(definition["shape"], 0), _dtype(definition["data_type"]))
    codecs = definition["codecs"]
    _check_axes(codecs, spec.ndim)
    permutation, chain = _permutation(codecs, spec.ndim)
    return ZarrArray(
        version=3,
        spec=spec,
        chunk_shape=_sizes(definition["chunk_grid"]["configuration"]["chunk_shape"], 1),
        codec=Codec(
            _chain_name(codecs),
            permutation,
            encoding_of([*map(_codec_of_v3, chain)]),
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


def _check_axes(codecs: list[dict[str, Any]], ndim: int) -> None:
    """ValueError where a codec, or one of shards, is for another number of axes."""
    for codec in codecs:
        if codec["name"] == "transpose" and isinstance(order := codec["configuration"]["order"], list):
            if sorted(order) != list(range(ndim)):
                raise ValueError(f"{order} is no order of {ndim} axes")
        elif codec["name"] == "sharding_indexed":
            if len(_sizes(codec["configuration"]["chunk_shape"], 1)) != ndim:
                raise ValueError(f"shards of {ndim} axes have chunks of others")
            _check_axes(codec["configuration"]["codecs"], ndim)


def _permutation(codecs: list[dict[str, Any]], ndim: int) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
    """What the leading transposes do to the axes, all in one; and the codecs after them."""
    axes = tuple(range(ndim))
    transposes = list(itertools.takewhile(lambda codec: codec["name"] == "transpose", codecs))
    permutation = axes
    for codec in transposes:
        order = codec["configuration"]["order"]
        order = {"C": axes, "F": axes[::-1]}[order] if isinstance(order, str) else order
        permutation = tuple(permutation[axis] for axis in order)
    return permutation, codecs[len(transposes) :]


_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""Of Blosc: names in version 3, numbers from 0 in version 2, where -1 is for the item size to decide."""
_CHAINS_OF_SHARDS = {"codecs": None, "index_codecs": np.dtype(np.uint64)}
"""Where shards have codecs of their own, and what those encode: the array's dtype where there is None."""


def _codec_of_v2(compressor: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """A compressor in the words of version 3, where that has it; else as it is, with its `id`."""
    name = compressor["id"]
    if name in ("zstd", "gzip"):
        return {"name": name, "configuration": {"level": compressor.get("level", 1)}}
    if name != "blosc":
        return compressor
    shuffle = compressor.get("shuffle", 1)
    shuffle = (2 if dtype.itemsize == 1 else 1) if shuffle == -1 else shuffle
    configuration = {
        "cname": compressor.get("cname", "lz4"),
        "clevel": compressor.get("clevel", 5),
        "shuffle": dict(enumerate(_SHUFFLES))[shuffle],
        "blocksize": compressor.get("blocksize", 0),
    }
    return {"name": name, "configuration": configuration}


def _codec_of_v3(codec: dict[str, Any]) -> dict[str, Any]:
    """A codec without what does not matter to decoding: Blosc's and zstd's chunks say that themselves."""
    configuration = codec.get("configuration", {})
    if codec["name"] == "bytes":
        return bytes_codec(configuration.get("endian", "little"))
    ignored = {"blosc": "typesize", "zstd": "checksum"}.get(codec["name"])
    kept = {key: value for key, value in configuration.items() if key != ignored}
    for chain in _CHAINS_OF_SHARDS if codec["name"] == "sharding_indexed" else ():
        if chain in kept:
            kept[chain] = [_codec_of_v3(inner) for inner in kept[chain]]
    return {"name": codec["name"]} | ({"configuration": kept} if kept else {})


def zarr2_metadata(manifest: Manifest) -> dict[str, Any] | None:
    """A `.zarray` for chunks under the names `0.1`: what version 2 reads from the stored bytes is the array.

    None where version 2 has no such dtype, codec or order of axes, and where chunks are missing.
    """
    axes, spec = manifest.long_axes, manifest.spec
    first, *rest = json.loads(manifest.codec.encoding)
    if (
        not manifest.complete
        or not manifest.codec.bytewise
        or list(axes) not in (sorted(axes), sorted(axes)[::-1])
    ):
        return None
    dtype, compressors = _v2_name(spec.dtype, first), [_compressor(codec) for codec in rest]
    if dtype is None or None in compressors or len(compressors) > 1:
        return None
    return {
        "zarr_format": 2,
        "shape": list(spec.shape),
        "chunks": list(manifest.chunk_shape),
        "dtype": dtype,
        "compressor": compressors[0] if compressors else None,
        "fill_value": None,
        "filters": None,
        "order": "C" if list(axes) == sorted(axes) else "F",
        "dimension_separator": ".",
    }


def _v2_name(dtype: np.dtype[Any], codec: dict[str, Any]) -> str | None:
    big = codec == bytes_codec("big")
    if dtype.name in NATIVE:
        return dtype.newbyteorder(">" if big else "<").str
    return dtype.name if dtype.name in EXTENDED and not big else None


def _compressor(codec: dict[str, Any]) -> dict[str, Any] | None:
    """A codec in the words of version 2; None where it has no such compressor."""
    if "id" in codec:
        return codec
    name = codec.get("name")
    configuration: dict[str, Any] = codec.get("configuration", {})
    if name in ("zstd", "gzip"):
        return {"id": name, "level": configuration.get("level", 1)}
    if name == "blosc":
        return {"id": name} | configuration | {"shuffle": _SHUFFLES.index(configuration["shuffle"])}
    return None


def zarr3_metadata(
    manifest: Manifest, chunk_keys: Literal["default", "v2"] = "default"
) -> dict[str, Any] | None:
    """A `zarr.json`: what version 3 reads from the stored bytes is the array. Not to be changed: it is kept.

    `chunk_keys`: the chunks have the names `c/0/1`, or `0.1` as in version 2. None where version 3 has no
    such dtype or codec, and where chunks are missing. What shards lack is for `wholly_stored` to find out.
    """
    if not manifest.complete:
        return None
    return _described_in_v3(manifest.spec, manifest.chunk_shape, manifest.codec, chunk_keys)


@functools.lru_cache(maxsize=4096)
def _described_in_v3(
    spec: ArraySpec, chunk_shape: Shape, codec: Codec, chunk_keys: str
) -> dict[str, Any] | None:
    codecs = [_codec_for_v3(step, spec.dtype) for step in json.loads(codec.encoding)]
    if spec.dtype.name not in _DTYPES or None in codecs:
        return None
    axes = long_axes(chunk_shape, codec) if codec.bytewise else codec.permutation
    if list(axes) != sorted(axes):
        codecs.insert(0, {"name": "transpose", "configuration": {"order": list(codec.permutation)}})
    separators = {"default": "/", "v2": "."}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.shape),
        "data_type": spec.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}},
        "chunk_key_encoding": {
            "name": chunk_keys,
            "configuration": {"separator": separators[chunk_keys]},
        },
        "fill_value": _zero(spec.dtype),
        "codecs": codecs,
        "attributes": {},
    }


def _codec_for_v3(codec: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any] | None:
    """A codec as metadata of version 3 has it for this dtype; None where it has no such codec.

    With all members that any version of TensorStore wants: before 0.1.74, zstd without `checksum` is refused.
    """
    if "name" not in codec:
        return None
    name, configuration = codec["name"], codec.get("configuration", {})
    if name == "bytes" and dtype.itemsize == 1:
        return {"name": "bytes"}
    if name == "blosc":
        return codec | {"configuration": configuration | {"typesize": dtype.itemsize}}
    if name == "zstd":
        return codec | {"configuration": {"level": 1, "checksum": False} | configuration}
    if name == "sharding_indexed":
        chains = {
            chain: [_codec_for_v3(inner, held or dtype) for inner in configuration[chain]]
            for chain, held in _CHAINS_OF_SHARDS.items()
            if chain in configuration
        }
        return codec | {"configuration": configuration | chains}
    return codec


def _zero(dtype: np.dtype[Any]) -> Any:
    """The fill value, which version 3 demands: never seen, as no chunk is missing."""
    if dtype.kind == "c":
        return [0, 0]
    return False if dtype.kind == "b" else 0
