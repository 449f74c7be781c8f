"""Help, examples and environment variables of every command."""

import json
import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

from ckpt_surgery.cli.parameters.command import GROUPS, MOST_UNGROUPED, VARIABLES, Command
from ckpt_surgery.cli.program import cli
from tests.support import checkpoints
from tests.support.command_line import run

ROOT = click.Context(cli, info_name="ckpt-surgery", **cli.context_settings)


def command(name: str) -> Command:
    found = cli.get_command(ROOT, name)
    assert isinstance(found, Command)
    return found


NAMES = cli.list_commands(ROOT)
EXAMPLES = [line for name in NAMES for line in command(name).examples]


ELSEWHERE = (
    "commit ",
    "apply @hf-llama3-to-jax model",
    "invert @hf-llama3-to-jax llama",
    "convert Llama-3.1-8B",
)
"""Examples that need shards of a run, a bucket or a large model."""
RECIPE = "version: 1\nrules: [{match: 'params/old/(.*)', to: 'params/new/\\1'}]\n"
MERGE = (
    "merge_method: dare_linear\nbase_model: old\nparameters: {weight: 1, density: 0.5}\n"
    "models: [{model: twin}]\n"
)
CODES = {"--detailed-exitcode": 2, "--exit-code": 3, "model.json": 3}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import orbax.checkpoint as ocp

    path = tmp_path_factory.mktemp("examples") / "old"
    kernel = np.arange(16, dtype=np.float32).reshape(4, 4)
    tree = {"params": {"old": {"kernel": kernel}}, "opt_state": {"mu": kernel}, "step": 7}
    with checkpoints.quiet():
        ocp.PyTreeCheckpointer().save(path, tree)
    return path


def prepare(directory: Path, old: Path, line: str) -> None:
    """What the examples take for granted: `new` only where it is not the example that makes it."""
    (directory / "recipes").mkdir()
    for name in ("recipe.yaml", "recipes/one.yaml"):
        (directory / name).write_text(RECIPE)
    done = [run("convert", old, "old"), run("plan", "recipe.yaml", "old", "--out", "plan.json")]
    if "--step" in line:
        done.append(run("convert", old, "run", "--dst-step", "1000"))
    if line.startswith(("diff", "infer", "verify")) or "--overwrite" in line or "--target" in line:
        done.append(run("apply", "recipe.yaml", "old", "new"))
    if line.startswith("merge"):
        done.append(run("convert", old, "twin"))
        for name in ("merge.yaml", "dare.yaml"):
            (directory / name).write_text(MERGE)
    if "model.json" in line:
        done.append(run("inspect", "new", "--json", "model.json"))
    assert [one.exit_code for one in done] == [0] * len(done), [one.output for one in done]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_works(line: str, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line.partition(" > ")[0])
    assert command(words[0]).make_context(words[0], words[1:], parent=ROOT)
    if line.startswith(ELSEWHERE):
        return
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, old, line)
    done = run(
        *(file for word in words for file in (sorted(tmp_path.glob(word)) if "*.yaml" in word else [word]))
    )
    told = [code for option, code in CODES.items() if option in words]
    assert done.exit_code in (0, *told), done.output


@pytest.mark.parametrize("name", NAMES)
def test_help_groups_options_and_ends_with_examples(name: str) -> None:
    examples = command(name).examples
    assert 2 <= len(examples) <= 4
    assert all(line.split()[0] == name for line in examples)
    lines = [f"  # {why}\n  ckpt-surgery {line}\n" for line, why in examples.items()]
    text, _, last = run(name, "--help", COLUMNS="80").stdout.partition("\nExamples:\n")
    assert last == "".join(lines)
    assert all(len(f"  # {why}") <= 80 for why in examples.values())
    # Many options are grouped.
    assert all(len(line) <= 80 for line in text.split("\n"))
    options = command(name).get_params(click.Context(command(name)))
    names = [max(one.opts, key=len) for one in options if isinstance(one, click.Option)]
    if len(names) <= MOST_UNGROUPED:
        return
    assert "\nOptions:\n" not in text, "an option is in no group: see GROUPS"
    sections = re.split(r"\n(What to .*|How to .*):\n", text)
    groups = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert list(groups) == [group for group in GROUPS if group in groups]
    for option in names:
        assert sum(bool(re.search(rf"^  .*{option}\b", one, re.MULTILINE)) for one in groups.values()) >= 1


def test_everyday_commands_come_first() -> None:
    text = run("--help", COLUMNS="80").stdout
    assert all(len(line) <= 80 for line in text.split("\n"))
    names = re.findall(r"^  (\w+) ", text.partition("Commands:\n")[2], re.MULTILINE)
    assert names[:5] == ["inspect", "plan", "apply", "convert", "diff"]
    assert names[-4:] == ["lint", "commit", "invert", "schema"]
    assert sorted(names) == sorted(NAMES)


OPTIONS = {
    (name, param.opts[-1]): param
    for name in NAMES
    for param in command(name).params
    if isinstance(param, click.Option)
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.arange(6, dtype=np.float32)}, "old.safetensors")
    Path("r.yaml").write_text("version: 1\nrules: [{match: a, to: b}]\n")
    return tmp_path


def test_only_options_of_taste_and_place_have_variables() -> None:
    assert {option for _, option in OPTIONS} >= set(VARIABLES)
    assert all(param.envvar == VARIABLES.get(option) for (_, option), param in OPTIONS.items())
    for name in NAMES:
        words = " ".join(run(name, "--help", COLUMNS="80").stdout.split())
        told = {VARIABLES[option] for command, option in OPTIONS if command == name and option in VARIABLES}
        assert set(re.findall(r"env var: (\w+)", words)) == told


def memory_of(*arguments: str, **variables: str) -> object:
    """The budget that a plan is made with, which a saved plan tells."""
    done = run("plan", "r.yaml", "old.safetensors", "new", "--out", "p.json", *arguments, **variables)
    assert done.exit_code == 0, done.output
    request = json.loads(Path("p.json").read_text())["saved"]["request"]
    return request["memory"], request["workers"], request.get("link_mode")


def test_a_variable_counts_and_the_command_line_goes_first(here: Path) -> None:
    values = {"MEMORY": "64MiB", "WORKERS": "3", "LINK_MODE": "copy"}
    variables = {f"CKPT_SURGERY_{name}": value for name, value in values.items()}
    assert memory_of(**variables) == (64 << 20, 3, "copy")
    assert memory_of("--memory", "32MiB", "--workers=5", **variables) == (32 << 20, 5, "copy")
    unset = dict.fromkeys(variables, "")
    assert memory_of(**unset) == memory_of()


WRONG = "MEMORY=2Gi MEMORY=-1 WORKERS=many WORKERS=0 LINK_MODE=soft VERIFY=yes ENGINE=ray"


@pytest.mark.parametrize("setting", WRONG.split())
def test_a_wrong_value_names_its_variable(here: Path, setting: str) -> None:
    variable, _, value = f"CKPT_SURGERY_{setting}".partition("=")
    done = run("apply", "r.yaml", "old.safetensors", "new", **{variable: value})
    assert (done.exit_code, variable in done.stderr) == (2, True)
    assert not (here / "new").exists()


def test_a_wrong_value_that_shows_later_names_its_variable(here: Path) -> None:
    save_file({"a": np.zeros((4, 1 << 20), np.float32)}, "old.safetensors")
    Path("r.yaml").write_text("version: 1\nrules: [{match: a, value: x * 2}]\n")
    plan = ("plan", "r.yaml", "old.safetensors")
    for arguments, variable in (((), "16"), (("--memory", "16"), "1GiB")):
        text = run(*plan, *arguments, CKPT_SURGERY_MEMORY=variable).stderr
        assert "--memory" in text
        assert ("CKPT_SURGERY_MEMORY" in text) == (not arguments)


def test_variables_do_not_get_in_the_way_of_saved_plans_and_shards(here: Path) -> None:
    plan = ["plan", "r.yaml", "old.safetensors", "new", "--link-mode", "copy", "--out", "p.json"]
    assert run(*plan).exit_code == 0
    values = {"LINK_MODE": "hardlink", "ENGINE": "dask", "SCHEDULER": "tcp://nowhere:1", "VERIFY": "full"}
    variables = {f"CKPT_SURGERY_{name}": value for name, value in values.items()}
    assert run("apply", "p.json", "new", "--shard", "0/1", **variables).exit_code == 0
    assert run("commit", "new", **variables).exit_code == 0
    local = {**variables, "CKPT_SURGERY_ENGINE": "local"}
    done = run("apply", "p.json", "again", **local)
    assert done.exit_code == 0, done.output
    assert run("apply", "p.json", "again", "--link-mode", "hardlink", "--overwrite").exit_code == 2


def test_nothing_else_comes_from_the_environment(here: Path) -> None:
    assert run("convert", "old.safetensors", "new").exit_code == 0
    names = ("OVERWRITE", "RESUME", "ALLOW_HOOKS", "YES", "E", "RULES", "SET", "STEP", "ITEM")
    done = run("convert", "old.safetensors", "new", **{f"CKPT_SURGERY_{name}": "1" for name in names})
    assert done.exit_code == 4
