"""Environment variables in place of options."""

import json
from pathlib import Path

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

from ckpt_surgery.cli.parameters.variables import VARIABLES
from ckpt_surgery.cli.program import cli
from tests.support.command_line import run

CONTEXT = click.Context(cli, info_name="ckpt-surgery")
COMMANDS = {name: cli.get_command(CONTEXT, name) for name in cli.list_commands(CONTEXT)}
OPTIONS = {
    (name, param.opts[-1]): param
    for name, command in COMMANDS.items()
    if command is not None
    for param in command.params
    if isinstance(param, click.Option)
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.arange(6, dtype=np.float32)}, "old.safetensors")
    Path("r.yaml").write_text("version: 1\nrules: [{match: a, to: b}]\n")
    return tmp_path


def test_only_options_of_taste_and_place_have_variables() -> None:
    found = {option: param.envvar for (_, option), param in OPTIONS.items() if param.envvar}
    assert found == VARIABLES
    assert all(OPTIONS[key].envvar == VARIABLES.get(key[1]) for key in OPTIONS)


@pytest.mark.parametrize(("name", "option"), [key for key in OPTIONS if key[1] in VARIABLES])
def test_help_names_the_variable(name: str, option: str) -> None:
    words = " ".join(run(name, "--help", COLUMNS="80").stdout.split())
    assert f"env var: {VARIABLES[option]}" in words


def memory_of(*arguments: str, **variables: str) -> object:
    """The budget that a plan is made with, which a saved plan tells."""
    done = run("plan", "r.yaml", "old.safetensors", "new", "--out", "p.json", *arguments, **variables)
    assert done.exit_code == 0, done.output
    saved = json.loads(Path("p.json").read_text())["saved"]
    request = saved["request"]
    return request["memory"], request["workers"], request.get("link_mode")


def test_a_variable_counts_and_the_command_line_goes_first(here: Path) -> None:
    variables = {
        "CKPT_SURGERY_MEMORY": "64MiB",
        "CKPT_SURGERY_WORKERS": "3",
        "CKPT_SURGERY_LINK_MODE": "copy",
    }
    assert memory_of(**variables) == (64 << 20, 3, "copy")
    assert memory_of("--memory", "32MiB", "--workers=5", **variables) == (32 << 20, 5, "copy")
    unset = dict.fromkeys(variables, "")
    assert memory_of(**unset) == memory_of()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CKPT_SURGERY_MEMORY", "2Gi"),
        ("CKPT_SURGERY_MEMORY", "-1"),
        ("CKPT_SURGERY_WORKERS", "many"),
        ("CKPT_SURGERY_WORKERS", "0"),
        ("CKPT_SURGERY_LINK_MODE", "soft"),
        ("CKPT_SURGERY_VERIFY", "yes"),
        ("CKPT_SURGERY_ENGINE", "ray"),
    ],
)
def test_a_wrong_value_names_its_variable(here: Path, variable: str, value: str) -> None:
    done = run("apply", "r.yaml", "old.safetensors", "new", **{variable: value})
    assert done.exit_code == 2
    assert variable in done.stderr
    assert not (here / "new").exists()


def test_a_wrong_value_on_the_command_line_names_the_option(here: Path) -> None:
    done = run("plan", "r.yaml", "old.safetensors", "--memory", "2Gi", CKPT_SURGERY_MEMORY="1GiB")
    assert done.exit_code == 2
    assert "--memory" in done.stderr
    assert "CKPT_SURGERY_MEMORY" not in done.stderr


def test_a_wrong_value_that_shows_later_names_its_variable(here: Path) -> None:
    save_file({"a": np.zeros((4, 1 << 20), np.float32)}, "old.safetensors")
    Path("r.yaml").write_text("version: 1\nrules: [{match: a, value: x * 2}]\n")
    told = [
        run("plan", "r.yaml", "old.safetensors", *arguments, **variables).stderr
        for arguments, variables in (
            ((), {"CKPT_SURGERY_MEMORY": "16"}),
            (("--memory", "16"), {"CKPT_SURGERY_MEMORY": "1GiB"}),
        )
    ]
    assert ["CKPT_SURGERY_MEMORY" in text for text in told] == [True, False]
    assert all("--memory" in text for text in told)


def test_variables_do_not_get_in_the_way_of_saved_plans_and_shards(here: Path) -> None:
    plan = ["plan", "r.yaml", "old.safetensors", "new", "--link-mode", "copy", "--out", "p.json"]
    assert run(*plan).exit_code == 0
    variables = {
        "CKPT_SURGERY_LINK_MODE": "hardlink",
        "CKPT_SURGERY_ENGINE": "dask",
        "CKPT_SURGERY_SCHEDULER": "tcp://nowhere:1",
        "CKPT_SURGERY_VERIFY": "full",
    }
    assert run("apply", "p.json", "new", "--shard", "0/1", **variables).exit_code == 0
    assert run("commit", "new", **variables).exit_code == 0
    local = {**variables, "CKPT_SURGERY_ENGINE": "local"}
    done = run("apply", "p.json", "again", **local)
    assert done.exit_code == 0, done.output
    assert run("apply", "p.json", "again", "--link-mode", "hardlink", "--overwrite").exit_code == 2


@pytest.mark.parametrize(
    "option", ["OVERWRITE", "RESUME", "ALLOW_HOOKS", "YES", "E", "RULES", "SET", "STEP", "ITEM"]
)
def test_nothing_else_comes_from_the_environment(here: Path, option: str) -> None:
    assert run("convert", "old.safetensors", "new").exit_code == 0
    done = run("convert", "old.safetensors", "new", **{f"CKPT_SURGERY_{option}": "1"})
    assert done.exit_code == 4
