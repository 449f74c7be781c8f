"""`demo`: what it writes can be tried at once, with the commands that it prints."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import run


def test_the_commands_that_it_prints_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import orbax.checkpoint as ocp

    monkeypatch.chdir(tmp_path)
    done = run("demo")
    assert done.exit_code == 0
    commands = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("  ckpt-surgery ")]
    assert [words[1] for words in commands] == ["inspect", "plan", "apply"]
    for _, *words in commands:
        assert run(*words).exit_code == 0
    old, new = (ocp.PyTreeCheckpointer().restore(tmp_path / "demo" / name) for name in ("old", "new"))
    layers = [old["params"][f"layer_{i}"]["mlp"]["wi"]["kernel"] for i in range(3)]
    stacked = new["params"]["layers"]["mlp"]["wi"]["kernel"]
    np.testing.assert_array_equal(stacked, np.stack(layers).astype(stacked.dtype))
    assert (stacked.dtype.name, new["step"]) == ("bfloat16", 1000)


def test_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert run("demo", str(tmp_path / "mine")).exit_code == 4
    assert list((tmp_path / "mine").iterdir()) == []
