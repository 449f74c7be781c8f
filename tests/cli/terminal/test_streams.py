"""Standard streams that are closed, full, or read by a program that leaves early, with real processes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.command_line import run

FULL = "> /dev/full"
LOST = (
    "Error: standard output cannot be written: No space left on device\n"
    "  Free some space, or send the output elsewhere.\n"
)
COMMANDS: Mapping[str, Sequence[str]] = {
    "help": ["--help"],
    "version": ["--version"],
    "recipes": ["recipes"],
    "schema": ["schema"],
    "lint": ["lint", "r.yaml"],
    "demo": ["demo", "out"],
    "completion": ["completion", "bash"],
    "env": ["env"],
    "clean": ["clean", "v.safetensors"],
    "explain": ["explain", "CS010"],
    "explain a key": ["explain", "r.yaml", "m.safetensors", "w0x0"],
    "infer": ["infer", "m.safetensors", "m.safetensors", "--out", "drafted.yaml"],
    "invert": ["invert", "r.yaml", "m.safetensors", "--out", "back.yaml"],
    "inspect": ["inspect", "m.safetensors", "--full"],
    "diff": ["diff", "m.safetensors", "m.safetensors"],
    "verify": ["verify", "v.safetensors"],
    "plan": ["plan", "r.yaml", "m.safetensors", "--full"],
    "commit": ["commit", "c.safetensors"],
    "apply": ["apply", "r.yaml", "m.safetensors", "out.npz", "--full", "--overwrite"],
    "convert": ["convert", "m.safetensors", "out.npz", "--full", "--overwrite"],
    "merge": ["merge", "g.yaml", "out.npz", "--full", "--overwrite"],
}
WRITES = ("apply", "convert", "merge")
MERGE = (
    "merge_method: linear\nparameters: {weight: 1}\n"
    "models: [{model: m.safetensors}, {model: v.safetensors}]\n"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of so many leaves that their list overflows every buffer, and copies of it."""
    path = tmp_path_factory.mktemp("streams")
    save_file({f"w{i * 7919 % 977}x{i}": np.arange(2.0) for i in range(2000)}, path / "m.safetensors")
    assert run("convert", path / "m.safetensors", path / "v.safetensors").exit_code == 0
    (path / "r.yaml").write_text("version: 1\n")
    (path / "g.yaml").write_text(MERGE)
    of_shards, plan = path / "c.safetensors", path / "p.json"
    for arguments in (
        ("plan", path / "r.yaml", path / "v.safetensors", of_shards, "--out", plan),
        ("apply", plan, "--shard", "0/1"),
        ("commit", of_shards),
    ):
        assert run(*arguments).exit_code == 0
    return path


@pytest.fixture
def here(files: Path, tmp_path: Path) -> Path:
    """A directory with these files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    return tmp_path


def shell(redirection: str, arguments: Sequence[str], here: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as a shell does that redirects its streams."""
    package = str(Path(__file__).parents[3])
    command = ["bash", "-c", f'"$@" {redirection}', "bash", sys.executable, "-m", "ckpt_surgery", *arguments]
    environment = {**os.environ, "PYTHONPATH": package, "COLUMNS": "100"}
    return subprocess.run(command, cwd=here, capture_output=True, text=True, env=environment, check=False)


def test_every_command_takes_part() -> None:
    listed = run("--help").stdout.partition("Commands:\n")[2].split("\n")
    assert {line.split()[0] for line in listed if line} <= set(COMMANDS)


@pytest.mark.slow("starts a program for each stream")
@pytest.mark.parametrize("name", COMMANDS)
def test_closed_streams_change_nothing(name: str, here: Path) -> None:
    done = shell(">&- 2>&-", COMMANDS[name], here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (here / "out.npz").exists() is (name in WRITES)


@pytest.mark.slow("starts a program for each stream")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_device_is_told_and_stops_no_run(name: str, here: Path) -> None:
    done = shell(FULL, COMMANDS[name], here)
    told = LOST + ("\nout.npz itself is new and complete\n" if name in WRITES else "")
    assert (done.returncode, done.stderr) == (5, told)
    if name in WRITES:
        assert len(np.load(here / "out.npz").files) == 2000


@pytest.mark.slow("starts a program for each stream")
@pytest.mark.parametrize("name", ["help", "inspect", "plan", "convert"])
def test_a_reader_that_leaves_ends_nothing(name: str, here: Path) -> None:
    done = shell("| head -n 1; exit ${PIPESTATUS[0]}", COMMANDS[name], here)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    assert (here / "out.npz").exists() is (name == "convert")


@pytest.mark.slow("starts a program for each stream")
def test_one_stream_alone(here: Path) -> None:
    """Errors do not move to the other one, and exit codes stay."""
    for redirection, told in ((">&-", "Error: missing does not exist"), ("2>&-", ""), ("2> /dev/full", "")):
        done = shell(redirection, ["inspect", "missing"], here)
        assert (done.returncode, done.stdout, done.stderr.split("\n")[0]) == (2, "", told)
    done = shell("2> /dev/full", ["convert", "m.safetensors", "out.npz"], here)
    assert (done.returncode, "\ndone  2,000 kept" in done.stdout) == (0, True)


@pytest.mark.slow("starts a program for each stream")
def test_a_document_that_is_lost(here: Path) -> None:
    convert = ["convert", "m.safetensors", "out.npz", "--json", "-", "-q"]
    done = shell(FULL, convert, here)
    assert (done.returncode, done.stderr) == (5, f"{LOST}\nout.npz itself is new and complete\n")
    done = shell(FULL, [*convert, "--overwrite", "--detailed-exitcode"], here)
    assert (done.returncode, "complete" in done.stderr) == (1, True)
    done = shell("| head -c 1; exit ${PIPESTATUS[0]}", [*convert, "--overwrite"], here)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")
    (here / "out.npz").unlink()
    done = shell(">&-", convert, here)
    assert done.returncode == 5
    assert done.stderr == (
        "Error: standard output is closed, so the JSON document cannot be written\n  Name a file for it.\n"
    )
    assert not (here / "out.npz").exists()
    done = shell("2>&-", convert, here)
    assert (done.returncode, json.loads(done.stdout)["destination"]) == (0, "out.npz")


def test_no_file_of_a_checkpoint_gets_the_number_of_a_closed_stream() -> None:
    """Nothing that a library prints can come to lie in it."""
    script = (
        "import os, sys; from ckpt_surgery.cli.terminal import streams; streams.guard(); "
        "sys.exit(os.open(os.devnull, os.O_RDONLY))"
    )
    command = ["bash", "-c", '"$@" <&- >&- 2>&-', "bash", sys.executable, "-c", script]
    assert subprocess.run(command, check=False).returncode > 2


def test_text_that_the_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    save_file({"a": np.arange(2.0)}, tmp_path / "m.safetensors")
    command = [sys.executable, "-m", "ckpt_surgery", "plan", "-e", "a = x + 1", "m.safetensors"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 leaf \\u2192 1" in done.stdout
