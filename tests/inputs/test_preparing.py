"""From a request to a plan: what is decided on the way, and what is warned of."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, UsageError
from ckpt_surgery.core.protocols import DataFile, Linkable
from ckpt_surgery.formats import known as formats
from ckpt_surgery.inputs.preparing import describe_destination, prepare, resolve_destination
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.planner.prepared import DestinationOptions
from ckpt_surgery.storage import linking
from ckpt_surgery.storage.listing import data_file
from tests.support.key_value import key_value
from tests.support.recipes import write_recipe


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones((4, 2), np.float32)}, path, {"run": "a17"})
    return str(path)


@pytest.mark.each
@pytest.mark.parametrize(
    ("dst", "given", "output", "format"),
    [
        (None, None, "", "orbax"),  # nothing is said
        ("out", None, "", "orbax"),
        ("Out.NPZ/", None, "", "npz"),  # the name
        ("out.npz", None, "output: {format: zarr}", "zarr"),  # the recipe before the name
        ("out.npz", "flax", "output: {format: zarr}", "flax"),  # the caller before all
        ("out.pt", "orbax", "", "orbax"),
    ],
)
def test_the_format_is_the_first_that_is_named(
    dst: str | None, given: str | None, output: str, format: str, model: str, tmp_path: Path
) -> None:
    where = None if dst is None else f"{tmp_path}/{dst}"
    recipe = write_recipe(tmp_path, f"version: 1\n{output}")
    request = Request(str(recipe), (model,), where, format=given)
    assert prepare(request).destination.format == format


def test_the_destination_is_looked_at_before_the_sources(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.plan(None, tmp_path / "gone", dst=tmp_path / "out")
    with pytest.raises(UsageError, match="gone"):
        ckpt_surgery.plan(None, tmp_path / "gone", dst=tmp_path / "out", overwrite=True)


def test_a_full_disk_is_found_before_the_first_byte(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 31  # the array has 32 bytes

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    recipe = "version: 1\nrules: [{match: a, value: x * 2}]"
    for run in (ckpt_surgery.plan, ckpt_surgery.apply):
        with pytest.raises(StorageError, match=r"32 B are to be written, 31 B are free"):
            run(recipe, model, dst=tmp_path / "out")
    Usage.free = 32
    ckpt_surgery.plan(recipe, model, dst=tmp_path / "out")


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_leaves_that_are_read_need_values(where: str, tmp_path: Path) -> None:
    donated = jax.numpy.ones(3)
    donated.delete()
    tree = {"a": [jax.ShapeDtypeStruct((2,), np.float32)] * 12, "d": donated, "w": np.ones(2, np.float32)}
    assert len(ckpt_surgery.plan(None, tree).steps) == 14  # a plan alone needs no values

    def carried_out(rules: str, plans: list[ckpt_surgery.Plan]) -> Any:
        recipe = f"version: 1\nrules:\n- {rules}\n"
        if where == "memory":
            return ckpt_surgery.restore(recipe, tree, on_plan=plans.append)
        return ckpt_surgery.apply(recipe, tree, dst=tmp_path / "c", on_plan=plans.append)

    plans: list[ckpt_surgery.Plan] = []
    with pytest.raises(SourceError) as raised:
        carried_out("{match: w, value: x * 2}", plans)
    assert "`a/{0..11}`, `d`" in str(raised.value)
    assert (plans, list(tmp_path.iterdir())) == ([], [])
    carried_out("{match: 'a/.*|d', drop: true}", plans)
    assert [step.leaf.key.text for step in plans[0].steps] == ["w"]


def options(dst: str | Path | None = None, **given: Any) -> DestinationOptions:
    return resolve_destination(Request(None, dst=None if dst is None else str(dst), **given), None)


def source(path: Path, format: str = "safetensors") -> Any:
    """What a destination asks of a source."""
    return SimpleNamespace(path=str(path), format=format)


# --- what can be linked -----------------------------------------------------------------------------------


def file_at(path: Path, mode: int = 0o644) -> DataFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"0123456789")
    path.chmod(mode)
    return data_file(str(path))


def linkable(mode: str, tmp_path: Path, *sources: Any, dst: Path | None = None) -> Any:
    given = options(dst or tmp_path / "out", link_mode=LinkMode(mode))
    return describe_destination(given, {}, sources).linkable


def test_reflinks_are_required_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_at(tmp_path / "x.npz")
    for reflinks in (True, None):  # None: the run will tell
        monkeypatch.setattr(linking, "can_reflink", lambda *_, found=reflinks: found)
        assert linkable("reflink", tmp_path)(file) is Linkable.YES
    with pytest.raises(StorageError, match=r"x\.npz cannot be reflinked into .*different file systems"):
        linkable("reflink", tmp_path)(replace(file, domain="elsewhere"))
    monkeypatch.setattr(linking, "can_reflink", lambda *_: False)
    with pytest.raises(StorageError, match=r'(?s)no reflinks\n.*`link_mode="auto"`.*`link_mode="copy"`'):
        linkable("reflink", tmp_path)(file)


def test_without_a_path_the_first_source_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(linking, "can_reflink", lambda file, directory: asked.append(directory))
    for first in (tmp_path / "in", tmp_path / "in" / "x.npz"):
        file = file_at(tmp_path / "in" / "x.npz")
        found = describe_destination(options(), {}, [source(tmp_path / "gone" / "x"), source(first)])
        assert found.linkable is not None
        assert found.linkable(file) is Linkable.IF_NEVER_REWRITTEN
    assert asked == [tmp_path / "in"] * 2
    assert describe_destination(options(), {}, [source(tmp_path / "gone" / "x")]).linkable is None


@pytest.mark.parametrize("stores", [False, True])
def test_what_is_uploaded_takes_over_no_objects(
    stores: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format that is written to a local directory first cannot have the store copy an object there."""
    orbax = replace(formats.format_named("orbax"), stores=stores)
    monkeypatch.setattr(formats, "format_named", lambda name: orbax)
    with key_value(tmp_path / "bucket") as bucket:
        linkable = describe_destination(options(f"{bucket}/out"), {}, []).linkable
    assert (linkable is not None) == stores
