"""Reading what stock Orbax wrote, in every layout, whole and damaged."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError, SurgeryError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.formats.opening import detect_format, open_source
from ckpt_surgery.formats.orbax.source import foreign_files
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.conformance import NAMES
from tests.support.directories import copy_of, touched
from tests.support.json_files import edit_json
from tests.support.reading import read, values

Checkpoint = Callable[[str], Path]


@pytest.mark.parametrize("layout", checkpoints.LAYOUTS)
def test_reads_what_orbax_wrote(layout: str, checkpoint: Checkpoint) -> None:
    path = checkpoint(layout)
    assert detect_format(str(path)).name == "orbax"
    assert_same(read(path), checkpoints.expected_of(layout))


@pytest.mark.parametrize(
    ("layout", "step", "item", "metadata"),
    [
        ("ocdbt-zarr3", None, None, checkpoints.CUSTOM),  # flat; from _METADATA
        ("standard", None, None, {}),
        ("steps", 10, "default", checkpoints.CUSTOM),  # the latest, not the last in alphabetical order
        ("steps-prefixed", 10, "default", checkpoints.CUSTOM),
        ("composite", 5, "state", {}),  # the other item holds no arrays
        ("v1", None, "state", checkpoints.CUSTOM),  # from _CHECKPOINT_METADATA
    ],
)
def test_default_step_and_item(
    layout: str, step: int | None, item: str | None, metadata: dict[str, object], checkpoint: Checkpoint
) -> None:
    source = open_source(str(checkpoint(layout)))
    assert (source.step, source.item, source.metadata) == (step, item, metadata)


@pytest.mark.parametrize("layout", ["steps", "steps-prefixed"])
def test_chosen_step(layout: str, checkpoint: Checkpoint) -> None:
    source = open_source(str(checkpoint(layout)), step=3)
    assert (source.step, int(values(source)["count"])) == (3, 0)
    assert "no step 4" in refusal(checkpoint(layout), step=4)
    (step,) = checkpoint(layout).glob("*10")
    for path in (step, step / "default"):
        assert_same(read(path), checkpoints.expected())


def test_kinds_and_container_kinds(checkpoint: Checkpoint) -> None:
    leaves = open_source(str(checkpoint("v1"))).leaves()
    kinds = {text: leaf.kind for text, leaf in leaves.items() if leaf.kind is not LeafKind.ARRAY}
    assert kinds == {
        **dict.fromkeys(("count", "rate", "flag"), LeafKind.SCALAR),
        **dict.fromkeys(("none", "dict", "list", "tuple"), LeafKind.EMPTY),
        **dict.fromkeys(("name", "a/b/s"), LeafKind.STRING),
        "key": LeafKind.PRNG_KEY,
    }
    assert leaves["key"].prng_impl == "threefry2x32"
    assert leaves["layers/2/deep"].key == Key(("layers", "2", "deep"), (False, True, False))
    assert leaves["a/b/c"].key.names == ("a/b", "c")
    assert json.loads(leaves["params/w"].sharding or "")["partition_spec"] == ["x", "y"]
    assert leaves["big"].sharding is None  # a NumPy array has none


@pytest.mark.parametrize(
    ("layout", "codec"),
    [
        ("plain-zarr2", "zstd"),
        ("ocdbt-zarr2", "zstd"),
        ("plain-zarr3", "sharded(zstd)"),
        ("v1", "sharded(zstd)"),
    ],
)
def test_manifests_say_where_the_bytes_are(layout: str, codec: str, checkpoint: Checkpoint) -> None:
    source = open_source(str(checkpoint(layout)))
    manifest = source.leaves()["params/w"].manifest
    assert (manifest.chunk_shape, manifest.codec.name, manifest.codec.order) == ((8, 32), codec, "C")
    assert sorted(manifest.chunks) == [(i, j) for i in range(4) for j in range(2)]
    item = checkpoint(layout) / (source.item or "")
    for chunk in manifest.chunks.values():
        assert chunk.inline is not None or (item / chunk.file).stat().st_size >= chunk.offset + chunk.length
    big = source.leaves()["big"].manifest
    assert all(chunk.file for chunk in big.chunks.values())  # too large to be inline
    replicated = source.leaves()["replicated"].manifest
    assert (replicated and replicated.chunk_shape) == (6, 2)
    # Equal encodings have equal definitions, whatever the shape; that of shards has their inner shape.
    assert (manifest.codec == big.codec) == (codec == "zstd")


def test_a_tree_that_is_one_array(tmp_path: Path) -> None:
    checkpoints.save_pytree(tmp_path / "c", np.arange(3.0))
    source = open_source(str(tmp_path / "c"))
    assert source.leaves()[""].key.names == ()
    assert_same(values(source), {"": np.arange(3.0)})
    assert "has no steps" in refusal(tmp_path / "c", step=1)
    assert "has no items" in refusal(tmp_path / "c", item="x")


def test_hostile_names_are_only_names(tmp_path: Path) -> None:
    names = [name for name in NAMES if "\\" not in name]  # which TensorStore takes for a slash
    arrays = {name: np.array([float(i)]) for i, name in enumerate(names)}
    checkpoints.save_pytree(tmp_path / "c", arrays)
    assert_same(read(tmp_path / "c"), arrays)


# Damage: a typed error or the right values, never wrong ones.


def damages(path: Path) -> list[tuple[Path, int | None]]:
    """Every file of a checkpoint with every size to cut it to; None: delete it, or a directory."""
    found: list[tuple[Path, int | None]] = []
    for file in sorted(path.rglob("*")):
        size = 0 if file.is_dir() else file.stat().st_size
        cuts = {cut for cut in (0, size // 2, size - 1) if 0 <= cut < size}
        found += [(file.relative_to(path), cut) for cut in (None, *cuts)]
    return found


def assert_noticed(
    original: Path, path: Path, wanted: dict[str, Any], found: list[tuple[Path, int | None]], least: int
) -> None:
    """Each damage to a copy is refused with a hint, which at least so many are, or changes no value."""
    copy_of(original, path)
    refused = 0
    for name, cut in found:
        if cut is not None:
            os.truncate(path / name, cut)
        elif (path / name).is_dir():
            shutil.rmtree(path / name)
        else:
            (path / name).unlink()
        try:
            source = open_source(str(path))
            got = values(source)
        except SourceError as error:
            refused += 1
            assert all(problem.hint for problem in error.problems), (name, cut, error)
        else:
            assert source.step in (None, 5, 10), (name, cut)  # not the older step instead
            assert_same(got, wanted)
            key = source.leaves().get("key")
            assert key is None or key.prng_impl == "threefry2x32", (name, cut)
        if (original / name).is_dir():
            shutil.copytree(original / name, path / name, symlinks=True)
        else:
            shutil.copy2(original / name, path / name)
    assert refused >= least


@pytest.mark.parametrize("layout", checkpoints.LAYOUTS)
def test_what_is_lost_or_cut_is_never_read_as_something_else(
    layout: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    original, wanted = checkpoint(layout), checkpoints.expected_of(layout)
    # A whole step less is another checkpoint, not a damaged one.
    found = [one for one in damages(original) if not layout.startswith("steps") or len(one[0].parts) > 1]
    assert_noticed(original, tmp_path / "c", wanted, found, 9)


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(SurgeryError) as caught:
        values(open_source(str(path), **options))  # type: ignore[arg-type]
    return str(caught.value)


def test_unfinished_saves(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """By their names, or by their missing commit."""
    path = copy_of(checkpoint("steps"), tmp_path / "c")
    (path / "10").rename(path / "10.orbax-checkpoint-tmp-1")
    assert open_source(str(path)).step == 3
    assert "never committed: its name has" in refusal(path / "10.orbax-checkpoint-tmp-1" / "default")
    (path / "10.orbax-checkpoint-tmp-1").rename(path / "10")
    (path / "10" / "commit_success.txt").unlink()
    edit_json(path / "10" / "_CHECKPOINT_METADATA", lambda about: about.update(commit_timestamp_nsecs=None))
    assert "never committed" in refusal(path, step=10)
    assert open_source(str(path)).step == 3  # the latest *committed* one
    shutil.rmtree(path / "3")
    assert "No step" in refusal(path)


@pytest.mark.slow("writes databases by many processes")
def test_databases_that_were_never_merged(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = copy_of(checkpoint("processes"), tmp_path / "c")
    (path / "manifest.ocdbt").unlink()
    assert "2 process(es) were never merged" in refusal(path)


def test_several_items_must_be_chosen_from(tmp_path: Path) -> None:
    small = {"x": np.arange(3.0)}
    checkpoints.save_composite(tmp_path / "c", 5, state=small, ema={"x": np.arange(2.0)})
    message = refusal(tmp_path / "c")
    assert "`ema`, `state`" in message
    assert "`item=NAME`" in message
    assert "has no arrays" in refusal(tmp_path / "c", item="data")
    assert "did you mean `state`" in refusal(tmp_path / "c", item="states")
    source = open_source(str(tmp_path / "c"), item="state")
    assert_same(values(source), small)


def test_an_array_that_is_listed_but_not_stored(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = copy_of(checkpoint("ocdbt-zarr2"), tmp_path / "c")

    extra = {
        "key_metadata": [{"key": "ghost", "key_type": 2}],
        "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False},
    }
    edit_json(path / "_METADATA", lambda document: document["tree_metadata"].update(ghost=extra))
    assert "`ghost`: it is in _METADATA, but there is no array" in refusal(path)


def test_leaves_that_cannot_be_told_apart(tmp_path: Path) -> None:
    checkpoints.save_pytree(tmp_path / "text", {"a/b": np.ones(1), "a": {"b": np.zeros(1)}})
    assert "Two leaves are both called `a/b`" in refusal(tmp_path / "text")
    checkpoints.save_pytree(tmp_path / "name", {"a.b": np.ones(1), "a": {"b": np.zeros(1)}})
    assert "share the stored array `a.b`" in refusal(tmp_path / "name")


def test_a_prng_key_whose_type_is_lost(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = copy_of(checkpoint("standard"), tmp_path / "c")
    shutil.rmtree(path / "array_metadatas")
    assert "`key`: whether it is a PRNG key is unknown" in refusal(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "a JSON list where an object belongs"),
        ('{"tree_metadata": 3}', "malformed"),
        ('{"tree_metadata": {"x": {"key_metadata": [{"key": 1, "key_type": 2}]}}}', "malformed"),
        (
            '{"tree_metadata": {"x": {"key_metadata": [{"key": "x", "key_type": 7}], '
            '"value_metadata": {"value_type": "None", "skip_deserialize": true}}}}',
            "(7,) are not kinds of keys",
        ),
        ("[" * 100_000, "not valid JSON"),  # deeper than any parser's stack
    ],
)
def test_malformed_tree_metadata(text: str, message: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = copy_of(checkpoint("plain-zarr2"), tmp_path / "c")
    (path / "_METADATA").write_text(text)
    assert message in refusal(path)


def test_json_that_only_python_writes(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Half of a surrogate pair, and no number: Python's `json` writes both, as Orbax uses it."""
    path = copy_of(checkpoint("plain-zarr2"), tmp_path / "c")

    odd = {
        "key_metadata": [{"key": "a\ud800", "key_type": 2}],
        "value_metadata": {"value_type": "None", "skip_deserialize": True},
    }
    before = open_source(str(path)).leaves()
    edit_json(path / "_METADATA", lambda document: document["tree_metadata"].update(odd=odd))
    edit_json(path / "_METADATA", lambda document: document.update(custom_metadata={"loss": float("nan")}))
    source = open_source(str(path))
    assert np.isnan(source.metadata["loss"])
    leaves = dict(source.leaves())
    assert leaves.pop("a\ud800").kind is LeafKind.EMPTY
    assert leaves == before


def test_damage_of_an_array_is_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its chunks and its metadata, which are read as those of other zarr arrays."""
    path = copy_of(checkpoint("plain-zarr2"), tmp_path / "c")
    (path / "params.w" / "1.1").write_bytes(b"no zstd frame" * 20)
    assert re.search(r"`params/w`.*params\.w/1\.1", refusal(path))
    edit_json(path / "params.w" / ".zarray", lambda about: about.update(shape=[10**15, 64]))
    assert re.search(r"`params/w`.*more than the", refusal(path))
    edit_json(path / "params.w" / ".zarray", lambda about: about.update(zarr_format=3))
    assert re.search(r"`params/w`.*malformed", refusal(path))


def test_links(checkpoint: Checkpoint, tmp_path: Path) -> None:
    original = checkpoint("plain-zarr3")
    (tmp_path / "link").symlink_to(original)
    assert_same(read(tmp_path / "link"), checkpoints.expected(strings=True))
    path = copy_of(original, tmp_path / "c")
    chunk = path / "params.b" / "c" / "0"
    chunk.rename(path / "moved")
    chunk.symlink_to(path / "moved")
    assert open_source(str(path)).leaves()
    (tmp_path / "outside").write_bytes((path / "moved").read_bytes())
    chunk.unlink()
    chunk.symlink_to(tmp_path / "outside")
    assert "is a symbolic link to" in refusal(path)


@pytest.mark.parametrize("ocdbt", [True, False])
def test_a_directory_with_a_backslash(ocdbt: bool, tmp_path: Path) -> None:
    """`a\\b` is one directory; TensorStore, which takes it for `a/b`, is not asked for files."""
    checkpoints.save_pytree(tmp_path / "a" / "b", {"x": np.ones(2)}, ocdbt)
    checkpoints.save_pytree(tmp_path / "c", {"x": np.zeros(2)}, ocdbt)
    (tmp_path / "c").rename(tmp_path / "a\\b")
    assert_same(read(tmp_path / "a\\b"), {"x": np.zeros(2)})


def test_a_key_with_a_backslash(tmp_path: Path) -> None:
    """TensorStore wrote the array to `a/b`; what lies there may as well be that of another key."""
    for ocdbt in (False, True):
        checkpoints.save_pytree(tmp_path / str(ocdbt), {"a\\b": np.ones(2)}, ocdbt)
    assert (tmp_path / "False" / "a" / "b" / ".zarray").exists()
    assert "`a\\b`: " in refusal(tmp_path / "False")
    assert "there is no array `a\\b`" in refusal(tmp_path / "False")
    assert_same(read(tmp_path / "True"), {"a\\b": np.ones(2)})


def test_beside_an_item(tmp_path: Path) -> None:
    own = [
        *("_METADATA", "_CHECKPOINT_METADATA", "_sharding", "_strings.json", "checkpoint", "manifest.ocdbt"),
        *("array_metadatas/process_0", "d/0a", "ocdbt.process_0/d/0b", "ocdbt.process_0/manifest.ocdbt"),
        *("params.w/.zarray", "params.w/0.1", "params.v/zarr.json", "params.v/c/0/1", "commit_success.txt"),
    ]
    others = ["_METADATA~", "c/0/1", "config.json", "e/0a", "params.w/notes"]
    touched(tmp_path, *own, *others)
    assert list(foreign_files(str(tmp_path), sorted(own + others))) == others


def test_beside_named_items(tmp_path: Path) -> None:
    own = ["state/_METADATA", "state/d/0a", "data/any/thing", "metrics/metrics", "old/metadata"]
    others = ["mine/a", "mine/b", "notes.txt", "state/notes.txt", "twice/metadata", "twice/other"]
    touched(tmp_path, *own, *others)
    (tmp_path / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": {"state": "", "data": ""}}))
    found = foreign_files(str(tmp_path), [*own, *others, "_CHECKPOINT_METADATA", "commit_success.txt"])
    assert sorted(found) == others
