"""Attributes of the root, which are custom metadata."""

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.opening import encoder, open_sink, open_source
from ckpt_surgery.formats.registry import SinkOptions
from tests.support.writing import write_all


def opened(path: Path) -> Source:
    return open_source(os.fspath(path), "hdf5")


def test_simple_attributes_of_the_root_are_metadata(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        given = {"text": "é", "empty": "", "int": 3, "float": 0.5, "flag": True, "big": 2**63 - 1}
        for name, value in given.items():
            file.attrs[name] = value
        file.attrs["fixed"] = np.bytes_(b"abc")
        file.attrs["latin"] = np.bytes_(b"\xff")
        file.attrs["list"] = [1, 2]
        file.attrs["complex"] = 1j
        file.attrs["nothing"] = h5py.Empty("f4")
        file.attrs["reference"] = file.ref
        file.create_group("g").attrs["other"] = 1
    found = opened(tmp_path / "x.h5").metadata
    assert found == {**given, "fixed": "abc"}
    assert {name: type(value) for name, value in found.items() if name in given} == {
        name: type(value) for name, value in given.items()
    }


def test_metadata_of_every_kind_is_kept_or_becomes_json(tmp_path: Path) -> None:
    given = {"text": "λ", "int": -3, "float": 1.5, "flag": False, "list": [1, "a"], "none": None, "n": 2**70}
    given["long"] = "x" * 300_000
    write_all(open_sink("hdf5", tmp_path, SinkOptions(metadata=given), []), {})
    changed = {"list": '[1, "a"]', "none": "null", "n": str(2**70)}
    assert opened(tmp_path).metadata == {**given, **changed}


@pytest.mark.parametrize("metadata", [{"": 1}, {"a": "b\0c"}, {"a\0": 1}, {"a": "\ud800"}, {"a": {1, 2}}])
def test_metadata_that_cannot_be_attributes(metadata: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="custom metadata"):
        encoder("hdf5", SinkOptions(metadata=metadata))
