"""Examples in the help of every command."""

import re
import shlex
from pathlib import Path

import click
import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckpt_surgery.cli.parameters.command import GROUPS, MOST_UNGROUPED, Command
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


def parsed(line: str) -> click.Context:
    """What click makes of an example. Redirections are the shell's. Raises click.UsageError."""
    name, *arguments = shlex.split(line.partition(" > ")[0])
    return command(name).make_context(name, arguments, parent=ROOT)


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_a_command_that_click_takes(line: str) -> None:
    assert parsed(line).info_name == line.split()[0]


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


@pytest.mark.parametrize("line", [line for line in EXAMPLES if not line.startswith(ELSEWHERE)])
def test_an_example_works(line: str, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, old, line)
    words = shlex.split(line.partition(" > ")[0])
    done = run(
        *(file for word in words for file in (sorted(tmp_path.glob(word)) if "*.yaml" in word else [word]))
    )
    told = [code for option, code in CODES.items() if option in words]
    assert done.exit_code in (0, *told), done.output


def test_a_wrong_example_is_found() -> None:
    for line in ("apply recipe.yaml --ovrwrite", "diff old", "convert a b --format nonsense", "inspect a b"):
        with pytest.raises(click.UsageError):
            parsed(line)


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_examples_one_below_the_other(name: str) -> None:
    examples = command(name).examples
    assert 2 <= len(examples) <= 4
    assert all(line.split()[0] == name for line in examples)
    lines = [f"  # {why}\n  ckpt-surgery {line}\n" for line, why in examples.items()]
    assert run(name, "--help", COLUMNS="80").stdout.partition("\nExamples:\n")[2] == "".join(lines)
    assert all(len(f"  # {why}") <= 80 for why in examples.values())


@pytest.mark.parametrize("name", NAMES)
def test_many_options_are_grouped(name: str) -> None:
    text = run(name, "--help", COLUMNS="80").stdout
    assert all(len(line) <= 80 for line in text.partition("\nExamples:\n")[0].split("\n"))
    options = command(name).get_params(click.Context(command(name)))
    names = [max(one.opts, key=len) for one in options if isinstance(one, click.Option)]
    if len(names) <= MOST_UNGROUPED:
        return
    assert "\nOptions:\n" not in text, "an option is in no group: see GROUPS"
    sections = re.split(r"\n(What to .*|How to .*):\n", text.partition("\nExamples:\n")[0])
    groups = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert list(groups) == [group for group in GROUPS if group in groups]
    for option in names:
        assert sum(bool(re.search(rf"^  .*{option}\b", one, re.MULTILINE)) for one in groups.values()) >= 1


def test_the_groups_of_apply() -> None:
    text = run("apply", "--help", COLUMNS="80").stdout
    at = [text.index(f"\n{group}:\n") for group in GROUPS]
    assert at == sorted(at)
    places = [text.index(f"\n  {name} ") for name in ("-e", "--format", "--memory", "--full")]
    assert all(start < place for start, place in zip(at, places, strict=True))
    assert all(place < end for place, end in zip(places, at[1:], strict=False))


def test_everyday_commands_come_first() -> None:
    text = run("--help", COLUMNS="80").stdout
    assert all(len(line) <= 80 for line in text.split("\n"))
    names = re.findall(r"^  (\w+) ", text.partition("Commands:\n")[2], re.MULTILINE)
    assert names[:5] == ["inspect", "plan", "apply", "convert", "diff"]
    assert names[-4:] == ["lint", "commit", "invert", "schema"]
    assert sorted(names) == sorted(NAMES)


def test_a_command_without_examples_has_no_heading() -> None:
    bare = Command("bare", help="Do nothing.")
    assert bare.get_help(click.Context(bare, info_name="bare")) == (
        "Usage: bare [OPTIONS]\n\n  Do nothing.\n\nOptions:\n  --help  Show this message and exit."
    )
