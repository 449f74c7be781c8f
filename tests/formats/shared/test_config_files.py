"""The JSON file beside a checkpoint: which one it is, and what is refused."""

import json
import os
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.config_files import MAX_BYTES, read_config

MODEL = {"model_type": "llama", "rope_scaling": {"factor": 8.0}, "head_dim": None, "ids": [1, 2]}


def written(path: Path, text: str = json.dumps(MODEL)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_it_lies_in_the_directory_or_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    paths = (str(tmp_path), str(tmp_path / "model.safetensors"), str(tmp_path / "model.ckpt"), "model.npz")
    assert [read_config(path) for path in paths] == [None] * 4
    written(tmp_path / "config.json")
    assert [read_config(path) for path in paths] == [("config.json", MODEL)] * 4


def test_an_adapter_has_its_own(tmp_path: Path) -> None:
    """PEFT's; the model's own config may lie there too."""
    written(tmp_path / "config.json")
    (tmp_path / "adapter_model.safetensors").touch()
    assert read_config(str(tmp_path)) is None
    written(tmp_path / "adapter_config.json", '{"r": 8}')
    for path in (tmp_path, tmp_path / "adapter_model.safetensors"):
        assert read_config(str(path)) == ("adapter_config.json", {"r": 8})


REFUSED = {
    '{"a": NaN}': "NaN is not a number in JSON",
    '{"a": ' + "9" * 5000 + "}": "not valid JSON",
    '{"a": ' + "[" * 64 + "]" * 64 + "}": "nested deeper than 64 levels",
    '{"a": "' + "x" * MAX_BYTES + '"}': "larger than 1 MiB",
}


@pytest.mark.parametrize(("text", "told"), REFUSED.items(), ids=[text[:30] for text in REFUSED])
def test_what_is_refused(text: str, told: str, tmp_path: Path) -> None:
    written(tmp_path / "config.json", text)
    with pytest.raises(SourceError) as caught:
        read_config(str(tmp_path))
    (problem,) = caught.value.problems
    assert told in problem.message
    assert problem.message.startswith(f"{tmp_path}/config.json")


def test_nesting_up_to_the_limit(tmp_path: Path) -> None:
    """With the object itself, these are 64 levels."""
    written(tmp_path / "config.json", '{"a": ' + "[" * 63 + "]" * 63 + "}")
    found = read_config(str(tmp_path))
    assert found is not None
    assert list(found[1]) == ["a"]


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(SourceError, match="is not a regular file"):
        read_config(str(tmp_path))


def test_links_stay_within_the_source(tmp_path: Path) -> None:
    """Or lead to the blobs of a Hugging Face cache."""
    written(tmp_path / "secret.json")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").symlink_to("../secret.json")
    with pytest.raises(SourceError, match="outside the checkpoint"):
        read_config(str(model))
    snapshot = tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    written(tmp_path / "blobs" / "abc")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    assert read_config(str(snapshot)) == ("config.json", MODEL)
    (model / "config.json").unlink()
    (model / "config.json").symlink_to("gone.json")
    with pytest.raises(SourceError, match="cannot be read"):
        read_config(str(model))
