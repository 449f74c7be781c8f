"""Checkpoints of one tree in every layout that bytes can be linked from, and values made of that tree."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from tests.support import checkpoints
from tests.support.checkpoints import random, sharded
from tests.support.heavy import jax, numcodecs, zarr
from tests.support.trees import nested

Arrays = Mapping[str, np.ndarray]
Layout = Callable[[str], Path]
"""A checkpoint in the layout of that name."""

LAYERS = 4


def arrays() -> dict[str, np.ndarray]:
    """Arrays by key. None compresses well, and each except `m/bias` is too large to be stored in an index."""
    generator = np.random.default_rng(11)
    layers = {f"m/layer_{i}/k": random((24, 16), 20 + i) for i in range(LAYERS)}
    return layers | {
        "m/w": random((32, 64)),
        "m/cube": random((8, 12, 10), 1),
        "m/rows": generator.integers(-(2**31), 2**31, (40, 24), np.int32),
        "m/half": random((64, 32), 3).astype(ml_dtypes.bfloat16),
        "m/bias": random((5,), 4),
    }


SPECIAL = {"count": 3, "rate": 1.5, "none": None, "dict": {}}
SPECIAL_VALUES = {"x/count": np.array(3), "x/rate": np.array(1.5), "x/none": "<None>", "x/dict": "<Dict>"}


def tree(strings: bool) -> dict[str, Any]:
    """The arrays, two of them sharded so that they have several chunks, and leaves of the other kinds."""
    stored: dict[str, Any] = dict(arrays())
    stored["m/w"] = sharded(stored["m/w"], "x", "y")
    stored["m/rows"] = sharded(stored["m/rows"], "x", None)
    special = SPECIAL | {"key": jax.random.key(7)} | ({"name": "hello"} if strings else {})
    return nested(stored) | {"x": special}


# --- stock writers ----------------------------------------------------------------------------------------


def _pytree(ocdbt: bool, zarr3: bool, strings: bool) -> Callable[[Path], None]:
    return lambda path: checkpoints.save_pytree(path, tree(strings), ocdbt, zarr3)


def replace_array(path: Path, key: str, array: np.ndarray, **how: Any) -> None:
    """Replace one array of a plain checkpoint by one of zarr-python; `how` goes to `zarr.create_array`."""
    directory = path / key.replace("/", ".")
    shutil.rmtree(directory)
    with checkpoints.quiet():
        made = zarr.create_array(directory, shape=array.shape, dtype=how.pop("dtype", array.dtype), **how)
        made[...] = array


def foreign_zarr2(path: Path) -> None:
    """Save with partial chunks at the edges, and with codecs and byte orders that Orbax does not write."""
    checkpoints.save_pytree(path, tree(False), False, False)
    held = arrays()
    v2: dict[str, Any] = {"zarr_format": 2, "filters": None}
    blosc = numcodecs.Blosc(cname="lz4", clevel=3, shuffle=1)
    replace_array(path, "m/w", held["m/w"], chunks=(10, 24), compressors=blosc, **v2)
    replace_array(path, "m/cube", held["m/cube"], chunks=(3, 12, 4), compressors=None, order="F", **v2)
    replace_array(path, "m/rows", held["m/rows"], chunks=(16, 24), compressors=None, dtype=">i4", **v2)
    for i in range(LAYERS):
        codec = numcodecs.BZ2() if i == 0 else numcodecs.GZip(2)
        replace_array(
            path, f"m/layer_{i}/k", held[f"m/layer_{i}/k"], chunks=(24, 16), compressors=codec, **v2
        )


def foreign_zarr3(path: Path) -> None:
    """Save in version 3 with partial chunks at edges, shards, transposes, gzip, Blosc and big endian."""
    from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec

    checkpoints.save_pytree(path, tree(False), False, True)
    held = arrays()
    v3: dict[str, Any] = {"zarr_format": 3}
    replace_array(path, "m/w", held["m/w"], chunks=(5, 16), shards=(10, 48), compressors=GzipCodec(), **v3)
    turned = TransposeCodec(order=(2, 0, 1))
    replace_array(path, "m/cube", held["m/cube"], chunks=(3, 12, 4), compressors=None, filters=[turned], **v3)
    big = BytesCodec(endian="big")
    replace_array(path, "m/rows", held["m/rows"], chunks=(16, 24), compressors=None, serializer=big, **v3)
    for i in range(LAYERS):
        replace_array(
            path, f"m/layer_{i}/k", held[f"m/layer_{i}/k"], chunks=(7, 16), compressors=BloscCodec(), **v3
        )


def save_safetensors(path: Path, tensors: Arrays, shards: int) -> None:
    """Save into a directory: one file, or `shards` of them and their index."""
    path.mkdir()
    if shards == 1:
        save_file(dict(tensors), path / "model.safetensors")
        return
    files = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in tensors if files[name] == file}, path / file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def safetensors_header(tensors: Mapping[str, tuple[str, tuple[int, ...], int]]) -> bytes:
    """The header of tensors whose data lie one after another, from code, shape and bytes by name."""
    end, entries = 0, {}
    for name, (code, shape, nbytes) in tensors.items():
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "plain-zarr2": _pytree(ocdbt=False, zarr3=False, strings=False),
    "plain-zarr3": _pytree(ocdbt=False, zarr3=True, strings=True),
    "ocdbt-zarr2": _pytree(ocdbt=True, zarr3=False, strings=True),
    "ocdbt-zarr3": _pytree(ocdbt=True, zarr3=True, strings=False),
    "v1": lambda path: checkpoints.save_v1(path, tree(True)),
    "foreign-zarr2": foreign_zarr2,
    "foreign-zarr3": foreign_zarr3,
    "safetensors": lambda path: save_safetensors(path, arrays(), 1),
    "shards": lambda path: save_safetensors(path, arrays(), 3),
}
WITH_STRINGS = ("plain-zarr3", "ocdbt-zarr2", "v1")


def everything(layout: str) -> dict[str, Any]:
    """Everything that a layout holds, in the form of `checkpoints.expected`."""
    if layout in ("safetensors", "shards"):
        return {**arrays()}
    key = {"x/key": np.array([0, 7], np.uint32)}
    return {**arrays(), **SPECIAL_VALUES, **key, **({"x/name": "hello"} if layout in WITH_STRINGS else {})}


# --- values -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An expression of a recipe, and the array that it must give."""

    value: str
    wanted: Callable[[Arrays], np.ndarray]


def _k(suffix: str = "") -> str:
    return ", ".join(f"source['m/layer_{i}/k']{suffix}" for i in range(LAYERS))


def _ks(a: Arrays) -> Sequence[np.ndarray]:
    return [a[f"m/layer_{i}/k"] for i in range(LAYERS)]


BF16 = ml_dtypes.bfloat16

CASES: dict[str, Case] = {
    "same": Case("source['m/w']", lambda a: a["m/w"]),
    "transposed": Case("source['m/w'].T", lambda a: a["m/w"].T),
    "turned": Case("transpose(source['m/cube'], [2, 0, 1])", lambda a: a["m/cube"].transpose(2, 0, 1)),
    "swapped": Case("transpose(source['m/cube'], [0, 2, 1])", lambda a: a["m/cube"].transpose(0, 2, 1)),
    "stacked": Case(f"stack([{_k()}])", lambda a: np.stack(_ks(a))),
    "stacked_1": Case(f"stack([{_k()}], axis=1)", lambda a: np.stack(_ks(a), 1)),
    "stacked_last": Case(f"stack([{_k()}], axis=-1)", lambda a: np.stack(_ks(a), -1)),
    "stacked_transposes": Case(f"stack([{_k('.T')}])", lambda a: np.stack([k.T for k in _ks(a)])),
    "stack_of_stacks": Case(
        f"stack([stack([{_k()}]), stack([{_k()}])], axis=1)", lambda a: np.stack([np.stack(_ks(a))] * 2, 1)
    ),
    "concatenated": Case(f"concat([{_k()}])", lambda a: np.concatenate(_ks(a))),
    "concatenated_1": Case(f"concat([{_k()}], axis=1)", lambda a: np.concatenate(_ks(a), 1)),
    "on_chunks": Case("source['m/rows'][10:30]", lambda a: a["m/rows"][10:30]),
    "to_the_end": Case("source['m/rows'][16:]", lambda a: a["m/rows"][16:]),
    "off_chunks": Case("source['m/rows'][3:17]", lambda a: a["m/rows"][3:17]),
    "columns": Case("source['m/rows'][:, 4:9]", lambda a: a["m/rows"][:, 4:9]),
    "row": Case("source['m/rows'][7]", lambda a: a["m/rows"][7]),
    "plane": Case("source['m/cube'][2]", lambda a: a["m/cube"][2]),
    "planes_back": Case("flip(source['m/cube'], 0)", lambda a: a["m/cube"][::-1]),
    "strided": Case("source['m/rows'][::2]", lambda a: a["m/rows"][::2]),
    "reshaped": Case("reshape(source['m/w'], (16, 128))", lambda a: a["m/w"].reshape(16, 128)),
    "flat": Case("reshape(source['m/half'], -1)", lambda a: a["m/half"].reshape(-1)),
    "bits": Case("bitcast(source['m/w'], 'int32')", lambda a: a["m/w"].view(np.int32)),
    "half_bits": Case("bitcast(source['m/half'].T, 'uint16')", lambda a: a["m/half"].T.view(np.uint16)),
    "rearranged": Case(
        f"rearrange(stack([{_k()}]), '(l e) o i -> l e i o', l=2)",
        lambda a: np.stack(_ks(a)).reshape(2, 2, 24, 16).transpose(0, 1, 3, 2),
    ),
    "heads": Case(
        "rearrange(source['m/w'], 'd (h k) -> h d k', k=16)",
        lambda a: a["m/w"].reshape(32, 4, 16).transpose(1, 0, 2),
    ),
    "taken": Case(f"take(stack([{_k()}]), [3, 1, 1, 0], 0)", lambda a: np.stack(_ks(a))[[3, 1, 1, 0]]),
    "expanded": Case("expand_dims(source['m/half'], 1)", lambda a: a["m/half"][:, None]),
    "there_and_back": Case(f"squeeze(stack([{_k()}])[1:2])", lambda a: _ks(a)[1]),
    "cast": Case("cast(source['m/w'], 'bfloat16')", lambda a: a["m/w"].astype(BF16)),
    "cast_stack": Case(
        f"cast(stack([{_k('.T')}]), 'float16')", lambda a: np.stack(_ks(a)).transpose(0, 2, 1).astype("f2")
    ),
    "cast_to_itself": Case("cast(source['m/w'], 'float32').T", lambda a: a["m/w"].T),
    "doubled": Case("source['m/w'] * 2", lambda a: a["m/w"] * np.float32(2)),
    "small": Case("flip(source['m/bias'], 0)", lambda a: a["m/bias"][::-1]),
    "small_stack": Case("stack([source['m/bias'], source['m/bias']])", lambda a: np.stack([a["m/bias"]] * 2)),
}

RENAMED = "kept"


def recipe(cases: Mapping[str, Case] = CASES, head: str = "version: 1") -> str:
    """A recipe that renames every leaf, and adds the rows of the cube one by one and the cases."""
    rules = [
        f"- {{match: '(?P<all>.*)', to: '{RENAMED}/${{all}}'}}",
        "- {add: 'rows/${i}', for: {i: 'range(8)'}, value: \"source['m/cube'][i]\"}",
        *(f'- {{add: case/{name}, value: "{case.value}"}}' for name, case in cases.items()),
    ]
    return "\n".join((head, "rules:", *rules, ""))


def results(layout: str, cases: Mapping[str, Case] = CASES) -> dict[str, Any]:
    """What `recipe` must make of a layout, by key."""
    a = arrays()
    return (
        {f"{RENAMED}/{text}": value for text, value in everything(layout).items()}
        | {f"rows/{i}": a["m/cube"][i] for i in range(8)}
        | {f"case/{name}": np.asarray(case.wanted(a)) for name, case in cases.items()}
    )


# --- runs -------------------------------------------------------------------------------------------------


def layouts(folder: Callable[[str], Path]) -> Layout:
    """A function that writes each checkpoint once, in a new `folder(name)`. Tests must not change them."""

    @cache
    def of(name: str) -> Path:
        path = folder(name) / "source"
        LAYOUTS[name](path)
        return path

    return of
