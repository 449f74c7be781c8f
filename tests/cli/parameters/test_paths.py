"""Paths of commands, rules in place of a recipe, and files that are written beside the checkpoint."""

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.cli.parameters.paths import split_paths
from ckpt_surgery.core.errors import DestinationError, UsageError
from tests.support.command_line import run
from tests.support.recipes import write_recipe


@pytest.mark.parametrize(
    ("names", "paths", "expected"),
    [
        (["source"], ["a"], (("a",), None)),
        (["source"], ["a", "b"], (("a",), "b")),
        (["base", "lora"], ["a", "b"], (("a", "b"), None)),
        (["base", "lora"], ["a", "b", "c"], (("a", "b"), "c")),
        (["base", "*"], ["a", "b"], (("a",), "b")),
        (["base", "*"], ["a", "b", "c"], (("a", "b"), "c")),
    ],
)
def test_split_paths(names, paths, expected):
    assert split_paths(names, paths) == expected


ONE = "the recipe takes 1 source (source) and one destination; "
TWO_OR_MORE = "the recipe takes 2 sources or more (base, lora, …) and one destination; missing: lora, DST"
HINT = "With `-e` there is no RECIPE"


@pytest.mark.each
@pytest.mark.parametrize(
    ("names", "paths", "message", "hinted"),
    [
        (
            "base lora x",
            "a",
            "the recipe takes 3 sources (base, lora, x) and one destination; missing: lora, x",
            False,
        ),
        ("source", "a b c\x1b d", f"{ONE}too many: c\\x1b, d", False),
        ("source", "@drop-optimizer old new", f"{ONE}too many: new", True),
        ("source", "r.yaml old new", f"{ONE}too many: new", True),
        ("base lora *", "a", TWO_OR_MORE, False),
    ],
)
def test_a_wrong_number_of_paths(names, paths, message, hinted):
    with pytest.raises(UsageError) as caught:
        split_paths(names.split(), paths.split())
    assert caught.value.problems[0].message.endswith(message)
    assert (HINT in str(caught.value)) == hinted


def test_a_missing_destination_is_refused_where_one_is_needed():
    with pytest.raises(UsageError, match=r"2 sources \(base, lora\) and one destination; missing: DST"):
        split_paths(["base", "lora"], ["a", "b"], needs_dst=True)


RULES = ("-e", r"s|params/old/(.*)|params/new/\1|", "-e", "drop:opt/.*", "-e", "step = x + 1")
PRINTED = r"""version: 1
rules:
  - {match: params/old/(.*), to: params/new/\1}
  - {match: opt/.*, drop: true}
  - {match: step, value: x + 1}

"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    arrays = {"params/old/w": np.arange(6.0), "opt/mu": np.zeros(6), "step": np.int32(7)}
    np.savez(tmp_path / "in.npz", **arrays)
    return tmp_path / "in.npz"


def test_what_is_printed_is_a_recipe_that_does_the_same(source: Path, tmp_path: Path) -> None:
    """Beside a document, which stays alone on stdout."""
    of_rules = run("plan", *RULES, "--json", "-", source)
    assert of_rules.stderr.startswith(PRINTED)
    of_file = run("plan", write_recipe(tmp_path, PRINTED.removesuffix("\n")), source, "--json", "-")
    plans = [json.loads(done.stdout) for done in (of_rules, of_file)]
    for plan in plans:
        del plan["recipe"]["path"]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--under", "params"], {"params/old/w"}),
        (["--under", "params/old/"], {"params/old/w"}),
        (["--under", "step"], {"step"}),
        (["--match", "(params|opt)/.*"], {"params/old/w", "opt/mu"}),
        (["--match", ".*/w", "--under", "params"], {"params/old/w"}),
    ],
)
def test_leaves_to_convert_are_chosen_as_those_to_inspect(
    source: Path, tmp_path: Path, options: list[str], kept: set[str]
) -> None:
    done = run("convert", source, tmp_path / "out.safetensors", *options, "--json", "-")
    assert done.exit_code == 0, done.output
    assert set(load_file(tmp_path / "out.safetensors")) == kept
    assert set(run("inspect", source, *options, "--keys").stdout.split()) == kept
    dropped = {entry["source"] for entry in json.loads(done.stdout)["dropped"]}
    assert dropped == {f"source:{key}" for key in {"params/old/w", "opt/mu", "step"} - kept}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--under", "parms"], "`params`"),
        (["--match", "w"], "`.*w.*` matches 1"),
        (["--match", "("], "`match`"),
        (["--under", "params", "--to", "hf"], "--under"),
        (["--under", "params", "--set", "a=1"], "--set"),
    ],
)
def test_a_choice_that_cannot_be_made(source: Path, tmp_path: Path, options: list[str], says: str) -> None:
    done = run("convert", source, tmp_path / "out.safetensors", *options)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("rule", ["s/old/new/", "s/params/weights/", "s|param|w|"])
def test_a_rule_for_whole_keys_that_matches_parts_is_offered_for_parts(source: Path, rule: str) -> None:
    """What is offered is run: it renames every key that has such a part, and nothing else."""
    done = run("plan", "-e", "drop:opt/.*", "-e", rule, source)
    assert done.exit_code == 2
    offered = shlex.split(done.stderr.split("add a g: ")[1].splitlines()[0])
    assert offered == ["-e", f"{rule}g"]
    planned = json.loads(run("plan", "-e", "drop:opt/.*", *offered, source, "--json", "-").stdout)
    _, old, new = rule.strip(rule[1]).split(rule[1])
    assert [leaf["key"] for leaf in planned["leaves"]] == ["params/old/w".replace(old, new), "step"]


EDITED = "version: 1\n# edited by hand\nrules: [{match: a, to: b}]\n"
MERGE = "merge_method: linear\nmodels:\n- {model: model, parameters: {weight: 1}}\ndtype: float32\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, "version: 1\nrules: [{match: a, to: b}]\n", "r.yaml")
    Path("model").mkdir()
    for file, key in (("old.safetensors", "a"), ("new.safetensors", "b"), ("model/model.safetensors", "a")):
        save_file({key: np.arange(6, dtype=np.float32)}, file)
    Path("model/config.json").write_text("{}")
    Path("merge.yaml").write_text(MERGE)
    return tmp_path


DRAFTS = [
    ("infer old.safetensors new.safetensors --out {}", "draft.yaml"),
    ("invert r.yaml old.safetensors --out {}", "back.yaml"),
    ("merge merge.yaml merged --dry-run --recipe {}", "recipe.yaml"),
]
PRODUCTS = [
    ("plan r.yaml old.safetensors --out {}", "plan.json"),
    ("plan r.yaml old.safetensors --report {}", "plan.html"),
    ("apply r.yaml old.safetensors x.npz --dry-run --report {}", "page.html"),
    ("convert old.safetensors x.npz --dry-run --report {}", "page.html"),
    ("merge merge.yaml merged --dry-run --report {}", "page.html"),
]


@pytest.mark.parametrize(("command", "file"), [*DRAFTS, *PRODUCTS])
def test_a_file_that_a_person_may_have_edited_is_kept_without_overwrite(
    command: str, file: str, place: Path
) -> None:
    Path(file).write_text(EDITED)
    refused = run(*command.format(file).split())
    assert refused.exit_code == 4
    assert file in refused.stderr
    assert "--overwrite" in refused.stderr
    assert "True" not in refused.stderr
    assert Path(file).read_text() == EDITED
    assert run(*command.format(file).split(), "--overwrite").exit_code == 0
    assert Path(file).read_text() != EDITED


@pytest.mark.parametrize(("command", "file"), [*DRAFTS, *PRODUCTS])
def test_an_empty_file_has_nothing_to_lose_and_products_are_made_again(
    command: str, file: str, place: Path
) -> None:
    """As CI jobs do."""
    Path(file).touch()
    for _ in range(2 if (command, file) in PRODUCTS else 1):
        assert run(*command.format(file).split()).exit_code == 0
    assert Path(file).stat().st_size > 0


@pytest.mark.each
@pytest.mark.parametrize(("name", "arguments"), [("infer", "new.safetensors"), ("invert", ""), ("plan", "")])
def test_functions_refuse_the_same(place: Path, name: str, arguments: str) -> None:
    paths = ("old.safetensors", arguments) if arguments else ("r.yaml", "old.safetensors")
    Path("draft.yaml").write_text(EDITED)
    with pytest.raises(DestinationError, match="`overwrite=True`"):
        getattr(ckpt_surgery, name)(*paths, out="draft.yaml")
    assert Path("draft.yaml").read_text() == EDITED
    getattr(ckpt_surgery, name)(*paths, out="draft.yaml", overwrite=True)
    assert Path("draft.yaml").read_text() != EDITED


def test_links_and_pipes(place: Path) -> None:
    """A file behind a link is as good as one that is named; a device keeps nothing."""
    Path("edited.yaml").write_text(EDITED)
    Path("draft.yaml").symlink_to("edited.yaml")
    arguments = ("infer", "old.safetensors", "new.safetensors", "--out")
    assert run(*arguments, "draft.yaml").exit_code == 4
    assert Path("edited.yaml").read_text() == EDITED
    assert run(*arguments, os.devnull).exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        *("plan r.yaml old.safetensors", "apply r.yaml old.safetensors x.npz"),
        *("convert old.safetensors x.npz", "merge merge.yaml merged", "explain r.yaml old.safetensors a"),
        *("infer old.safetensors new.safetensors", "invert r.yaml old.safetensors"),
        *("inspect old.safetensors", "diff old.safetensors new.safetensors", "verify old.safetensors"),
        "commit x",
    ],
)
@pytest.mark.parametrize("name", ["new", "notes.yaml", "x.safetensors", "new.json/"])
def test_a_json_document_is_called_so(command: str, name: str, place: Path) -> None:
    before = sorted(os.listdir())
    refused = run(*command.split(), "--json", name)
    assert refused.exit_code == 2
    assert name in refused.stderr
    assert sorted(os.listdir()) == before


def test_json_goes_to_stdout_and_to_devices(place: Path) -> None:
    assert json.loads(run("inspect", "old.safetensors", "--json").stdout)["leaves"]
    assert run("inspect", "old.safetensors", "--json", os.devnull).exit_code == 0
    for _ in range(2):  # documents are made again and again
        assert run("inspect", "old.safetensors", "--json", "x.json").exit_code == 0
    assert json.loads(Path("x.json").read_text())["leaves"]
