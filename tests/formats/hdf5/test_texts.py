"""Texts of attributes, which are found without libhdf5."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.opening import open_source
from tests.support.strategies import unicode

TEXTS = {f"name {i}": "é" * i for i in range(60)}


@pytest.mark.parametrize("how", [{}, {"userblock_size": 512}], ids=str)
def test_many_texts(how: dict[str, Any], tmp_path: Path) -> None:
    """They take several pieces of the header, which lie apart from each other, and several heaps."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", **how) as file:
        for name, text in TEXTS.items():
            file.attrs[name] = text
            file.create_group(name)
            file.attrs["long"] = "x" * 10_000
    assert open_source(str(path)).metadata == TEXTS | {"long": "x" * 10_000}


@pytest.mark.parametrize("how", [{}, {"userblock_size": 512}, {"track_times": True}], ids=str)
def test_texts_of_the_newest_layout(how: dict[str, Any], tmp_path: Path) -> None:
    """A few in the header; where there are many, libhdf5 puts them elsewhere, and they are left out."""
    few = dict(list(TEXTS.items())[:7])
    track = {"track_times": how.pop("track_times", False)}
    for texts in (few, TEXTS):
        path = tmp_path / f"{len(texts)}.h5"
        with h5py.File(path, "w", libver="latest", **how) as file:
            for name, text in texts.items():
                file.attrs[name] = text
            made = file.create_dataset("x", data=np.zeros(3, "V1"), **track)
            made.attrs["dtype"] = "float8_e5m2"
        source = open_source(str(path))
        assert source.metadata == (few if texts is few else {})
        assert source.leaves()["x"].spec.dtype.name == "float8_e5m2"


@settings(max_examples=20, deadline=None)
@given(texts=st.dictionaries(unicode(20, "\0").filter(bool), unicode(200, "\0"), max_size=12))
def test_any_texts(texts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("texts") / "x.h5"
    with h5py.File(path, "w") as file:
        for name, text in texts.items():
            file.attrs[name] = text
    assert open_source(str(path)).metadata == texts


def test_a_text_of_gigabytes_that_is_not_there(tmp_path: Path) -> None:
    """libhdf5 would take the memory, and then crash when the process ends."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["text"] = "some words"
    data = path.read_bytes()
    heap = data.index(b"GCOL").to_bytes(8, "little")
    stored = (10).to_bytes(4, "little") + heap
    assert data.count(stored) == 1
    for other, says in (
        ((2**32 - 1).to_bytes(4, "little") + heap, "has 4294967295 bytes, which are missing"),
        ((10).to_bytes(4, "little") + bytes(8), "does not begin as one"),
        ((10).to_bytes(4, "little") + b"\xff" * 8, "is cut off"),
    ):
        path.write_bytes(data.replace(stored, other))
        with pytest.raises(SourceError, match=rf"x\.h5: .*{says}"):
            open_source(str(path))
        assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) == 0
