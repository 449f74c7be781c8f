"""The models of JSON documents take what the commands really write, and nothing that is not described."""

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import save_file

from ckpt_surgery.cli.documents.schemas import DOCUMENTS
from tests.support.command_line import run
from tests.support.documents import check_document


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tree = {"a/w": np.array([1, np.inf, np.nan], np.float32), "a/x": np.zeros((2, 2), np.float32)}
    save_file({**tree, "old": np.arange(4)}, tmp_path / "m.safetensors")
    save_file({**tree, "a/x": np.ones(3, np.float16), "new": np.arange(4)}, tmp_path / "n.safetensors")
    (tmp_path / "hf").mkdir()
    save_file(tree, tmp_path / "hf" / "model.safetensors")
    (tmp_path / "hf" / "config.json").write_text("{}")
    (tmp_path / "bad.yaml").write_text("version: 1\nrules: [{mtach: a}]\n")
    (tmp_path / "r.yaml").write_text(
        "version: 1\nparams: {to: b, sizes: [1, 2]}\n"
        "rules:\n  - {match: 'a/(.*)', to: '${to}/\\1'}\n  - {match: old, drop: true}\n"
        "  - {add: c, value: 'zeros((2,), \"float32\")'}\n"
    )
    assert run("plan", "r.yaml", "m.safetensors", "s.safetensors", "--out", "p.json").exit_code == 0
    assert run("convert", "m.safetensors", "v.safetensors").exit_code == 0
    return tmp_path


WRITTEN = [
    ("plan", "plan r.yaml m.safetensors --json"),
    ("plan", "plan r.yaml m.safetensors --target n.safetensors --set to=a --json"),
    ("plan", "apply r.yaml m.safetensors out.npz --json"),
    ("plan", "apply r.yaml m.safetensors out --format orbax --verify full --json"),
    ("plan", "convert m.safetensors out.npz --json"),
    ("plan", "convert hf/model.safetensors out.hf --format safetensors --json"),
    ("explain", "explain r.yaml m.safetensors b/x --json"),
    ("explain", "explain r.yaml m.safetensors c --json"),
    ("explain", "explain r.yaml m.safetensors old --json"),
    ("explain", "explain r.yaml m.safetensors a --json"),
    ("inspect", "inspect m.safetensors --json"),
    ("inspect", "inspect m.safetensors --stats --json"),
    ("diff", "diff m.safetensors n.safetensors --json"),
    ("diff", "diff m.safetensors n.safetensors --values --json"),
    ("env", "env --json"),
    ("clean", "clean v.safetensors --json"),
    ("verify", "verify v.safetensors --json"),
    ("lint", "lint r.yaml --format json"),
    ("lint", "lint r.yaml bad.yaml --format json"),
    ("infer", "infer m.safetensors v.safetensors --json -"),
    ("invert", "invert r.yaml m.safetensors --json"),
    ("error", "plan bad.yaml m.safetensors --json"),
    ("error", "inspect gone.npz --json"),
    ("error", "plan --nope --json"),
    ("shard", "apply p.json --shard 0/1 --json"),
]


@pytest.mark.parametrize(("name", "line"), WRITTEN, ids=[line for _, line in WRITTEN])
def test_what_commands_write_is_described(here: Path, name: str, line: str) -> None:
    if "--target" in line:
        save_file({"a/w": np.zeros(3, np.float32), "c": np.zeros(2, np.float32)}, here / "n.safetensors")
        (here / "r.yaml").write_text("version: 1\ntarget: {missing: fallback}\n")
        line = line.replace("--set to=a ", "")
    done = run(*line.split())
    document = json.loads(done.stdout)
    check_document(name, document)
    assert len(document.get("companions", ())) == (1 if "out.hf" in line else 0)
    for other in set(DOCUMENTS) - {name, "lint"}:
        with pytest.raises(ValidationError):
            check_document(other, document)


def test_a_shard_that_is_damaged_and_a_publication_are_described(here: Path) -> None:
    assert run("apply", "p.json", "--shard", "0/1").exit_code == 0
    check_document("plan", json.loads(run("commit", "s.safetensors", "--json").stdout))
    check_document("committed", json.loads(run("commit", "s.safetensors", "--json").stdout))
    data = bytearray((here / "v.safetensors").read_bytes())
    data[-1] ^= 1
    (here / "v.safetensors").write_bytes(data)
    done = run("verify", "v.safetensors", "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["flaw_count"]) == (3, 1)
    check_document("verify", document)


def test_every_document_is_written_by_a_test() -> None:
    assert {name for name, _ in WRITTEN} | {"committed"} == set(DOCUMENTS)
