"""Directories that are uploaded: in which order, and what a run that ends in between leaves."""

import pytest

from ckpt_surgery.engine.staging.life import staged
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.staging.uploads import DirectoryUpload
from tests.support.calls import record_calls
from tests.support.ended_runs import IDENTITY
from tests.support.generations import replaced_at
from tests.support.key_value import KeyValueStore
from tests.support.object_runs import objects

SHARDS = {"model-1.safetensors": b"one", "model-2.safetensors": b"two", "model.safetensors.index.json": b"{}"}
CONFIG = {"config.json": b"{}", "tokenizer.json": b"[]", "vocab.txt": b"a"}


def run(url: str, files: dict[str, bytes], overwrite: bool = False, record: str = "") -> None:
    target = StoreStage(url, IDENTITY, replaced_at(url, overwrite))
    with staged(DirectoryUpload(target, 0)) as stage:
        for name, data in files.items():
            (stage.tree / name).write_bytes(data)
        if record:
            stage.put_beside(record)
        stage.publish()
    assert stage.published


def below(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"out/{name}": data for name, data in files.items()}


LAST = ["ckpt_surgery.json", "model.safetensors.index.json"]


@pytest.mark.parametrize(
    ("weights", "last"),
    [({**SHARDS, "ckpt_surgery.json": b"[]"}, LAST), ({"model.safetensors": b"all"}, ["model.safetensors"])],
    ids=["shards", "one"],
)
def test_config_and_data_come_before_what_makes_them_complete(
    weights: dict[str, bytes], last: list[str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = record_calls(monkeypatch, KeyValueStore, "put", lambda store, name, *rest: name)
    run(url, CONFIG | weights)
    assert objects(url) == below(CONFIG | weights)
    order = [name.removeprefix("runs/out/") for name in put if "ckpt-surgery" not in name]
    assert sorted(order) == sorted(CONFIG | weights)
    assert order[-len(last) :] == last


def test_the_only_file_is_put_on_the_condition_that_there_is_none(url: str) -> None:
    run(url, {"model.safetensors": b"all"}, record="made by me")
    assert objects(url) == {"out/model.safetensors": b"all", "out.ckpt_surgery.json": b"made by me"}
    run(url, SHARDS, overwrite=True)
    assert objects(url) == below(SHARDS)


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("old", [SHARDS, {"model.safetensors": b"old"}, {"a": b"1", "b": b"2"}])
def test_an_older_one_is_replaced_by_one_file(
    old: dict[str, bytes], copies: bool, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the store cannot copy an object of this size by itself."""
    run(url, old)
    if not copies:
        monkeypatch.setattr(KeyValueStore, "copies", lambda *arguments: False)
    run(url, {"model.safetensors": b"new"}, overwrite=True)
    assert objects(url) == {"out/model.safetensors": b"new"}


@pytest.mark.parametrize("weights", [SHARDS, {"model.safetensors": b"all"}], ids=["shards", "one"])
@pytest.mark.parametrize("old", [{}, {"config.json": b"old"}], ids=["without", "with"])
def test_an_older_checkpoint_never_has_the_config_of_the_new_one(
    old: dict[str, bytes],
    weights: dict[str, bytes],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(url, SHARDS | old)
    seen = record_calls(monkeypatch, StoreStage, "publish", lambda staging: objects(url))
    run(url, CONFIG | weights, overwrite=True)
    assert seen[0].get("out/config.json") == old.get("config.json")
    assert "out/vocab.txt" not in seen[0]
    assert objects(url) == below(CONFIG | weights)
