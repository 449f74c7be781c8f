"""Zarr groups that are written to stores: whole chunks as objects, and what a run that goes on finds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.opening import open_sink, open_source
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.storage.store import store_of
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.key_value import KeyValueStore, key_value, uploaded
from tests.support.libraries import save_zarr
from tests.support.reading import values
from tests.support.store_conformance import forget
from tests.support.writing import output_of, write_all

SHAPE, CHUNKS = (7, 5), (3, 2)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    forget()
    with key_value(tmp_path / "bucket") as url:
        yield url
    forget()


def stored(url: str) -> dict[str, Output]:
    """Outputs that are copied from a checkpoint as they are."""
    leaves = open_source(url).leaves()
    found = {}
    for key, leaf in leaves.items():
        assert leaf.manifest is not None
        found[key] = replace(output_of(key, np.zeros(leaf.spec.shape)), leaf=leaf, stored=leaf.manifest)
    return found


def test_a_part_is_read_from_its_chunks(bucket: str) -> None:
    value = array(SHAPE, "float32")
    sink = open_sink("zarr", f"{bucket}/out", SinkOptions(), [output_of("x", value, CHUNKS)])
    write_all(sink, {"x": value})
    store = store_of(bucket)[0]
    assert isinstance(store, KeyValueStore)
    store.requests.clear()
    region = Region((3, 2), (6, 5))
    assert same(sink.attach("0").read(sink.outputs[0], region), value[region.slices])
    read = [request for request in store.requests if request.startswith("read")]
    assert sorted(read) == ["read out/x/c/1/1", "read out/x/c/1/2"]


def test_what_is_missing_or_damaged_is_not_read(bucket: str) -> None:
    value = array(SHAPE, "float32")
    sink = open_sink("zarr", f"{bucket}/out", SinkOptions(), [output_of("x", value, CHUNKS)])
    write_all(sink, {"x": value})
    store, writer, whole = store_of(bucket)[0], sink.attach("0"), Region.whole(SHAPE)
    store.put("out/x/c/1/1", store.read("out/x/c/1/1")[:-1])
    with pytest.raises(SourceError, match="`x`: its chunk c/1/1 cannot be decoded"):
        writer.read(sink.outputs[0], whole)
    store.delete(["out/x/c/1/1"])
    with pytest.raises(SourceError, match="`x` lacks 1 of its chunks"):
        writer.read(sink.outputs[0], whole)


def test_stored_bytes_are_copied_once(tmp_path: Path, bucket: str) -> None:
    arrays = {"a/x": array(SHAPE, "float32"), "y": array((3,), "uint8")}
    outputs = stored(uploaded(save_zarr(arrays, tmp_path / "in"), f"{bucket}/in"))
    sink = open_sink("zarr", f"{bucket}/out", SinkOptions(), list(outputs.values()))
    writer, store = sink.attach("0"), store_of(bucket)[0]
    assert isinstance(store, KeyValueStore)
    crcs = {key: writer.adopt(output).chunks for key, output in outputs.items()}
    sink.finish(["0"])
    assert_same(values(open_source(f"{bucket}/out")), arrays)
    store.requests.clear()
    store.put("out/y/c/0", b"damaged")
    assert {key: writer.adopt(output, crcs[key]).chunks for key, output in outputs.items()} == crcs
    assert [r for r in store.requests if r.startswith("put")] == ["put out/y/c/0"] * 2
    forget()
    assert_same(values(open_source(f"{bucket}/out")), arrays)
