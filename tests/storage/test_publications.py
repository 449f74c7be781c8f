"""Checkpoints that a run has begun to publish, and what readers make of them."""

import json
from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.orbax_layout import COMMIT_FILE
from ckpt_surgery.storage.store import store_of
from tests.support.checkpoints import save_pytree
from tests.support.key_value import downloaded

JOURNAL = ".ckpt-surgery/0123456789abcdef.json"


@pytest.fixture
def url(tmp_path: Path, bucket: str) -> str:
    """A checkpoint in a store."""
    save_pytree(tmp_path / "in", {"a": np.arange(5.0)})
    ckpt_surgery.apply(None, tmp_path / "in", dst=f"{bucket}/run/3")
    return f"{bucket}/run/3"


def note(url: str, state: str, marker: str = COMMIT_FILE) -> None:
    """Put the journal of a run there."""
    store, name = store_of(url)
    documents = {"_METADATA": "", marker: ""}
    store.put(f"{name}/{JOURNAL}", json.dumps({"state": state, "documents": documents}).encode())


def uncommit(url: str) -> None:
    store, name = store_of(url)
    store.delete([f"{name}/{COMMIT_FILE}"])


def test_without_its_marker_what_is_being_published_is_refused(url: str, tmp_path: Path) -> None:
    """Also where it was downloaded; without a commit file, what other tools uploaded is read."""
    note(url, "switching")
    assert len(ckpt_surgery.inspect(url).leaves) == 1
    uncommit(url)
    for place in (url, downloaded(url, tmp_path / "copy")):
        with pytest.raises(SourceError, match="is not committed: a run has begun to publish it"):
            ckpt_surgery.inspect(place)
    note(url, "writing")
    assert len(ckpt_surgery.inspect(url).leaves) == 1


def test_the_latest_step_is_one_that_is_committed(url: str, tmp_path: Path) -> None:
    root = url.rpartition("/")[0]
    ckpt_surgery.apply(None, tmp_path / "in", dst=f"{root}/9")
    note(f"{root}/9", "switching")
    uncommit(f"{root}/9")
    assert ckpt_surgery.inspect(root).step == 3
    with pytest.raises(SourceError, match="never committed"):
        ckpt_surgery.inspect(root, step=9)


def test_other_formats_have_markers_too(url: str, tmp_path: Path) -> None:
    made = url.replace("/3", "/out.zarr")
    ckpt_surgery.apply(None, tmp_path / "in", dst=made)
    note(made, "switching", "zarr.json")
    assert len(ckpt_surgery.inspect(made).leaves) == 1
    store, name = store_of(made)
    store.delete([f"{name}/zarr.json"])
    with pytest.raises(SourceError):
        ckpt_surgery.inspect(made)
