"""Which paths are sources."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ckpt_surgery.cli.parameters.paths import missing_destination, split_paths
from ckpt_surgery.core.errors import UsageError
from tests.support.command_line import run


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


@pytest.mark.parametrize(
    ("names", "paths", "message"),
    [
        (["base", "lora", "x"], ["a"], "the recipe takes 3 sources (base, lora, x); missing: lora, x"),
        (
            ["source"],
            ["a", "b", "c\n", "d"],
            "the recipe takes 1 source (source) and one destination; too many: c\\n, d",
        ),
        (
            ["base", "lora", "*"],
            ["a"],
            "the recipe takes 2 sources or more (base, lora, …) and one destination; 1 path given",
        ),
    ],
)
def test_a_wrong_number_of_paths(names, paths, message):
    with pytest.raises(UsageError) as caught:
        split_paths(names, paths)
    assert caught.value.problems[0].message == message


def test_a_recipe_beside_rules_is_no_source():
    for recipe, hinted in (("@drop-optimizer", True), ("r.yaml", True), ("old", False)):
        with pytest.raises(UsageError) as caught:
            split_paths(["source"], [recipe, "old", "new"])
        assert ("With `-e` there is no RECIPE" in str(caught.value)) is hinted


def test_a_missing_destination_names_the_sources():
    assert missing_destination(["source"]).problems[0].message == "DST is missing"
    assert missing_destination(["base", "lora"]).problems[0].message == (
        "DST is missing: the paths are those of the 2 sources (base, lora)"
    )


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


def test_rules_without_a_file(source: Path, tmp_path: Path) -> None:
    done = run("apply", *RULES, source, tmp_path / "out.safetensors")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(PRINTED)
    found = load_file(tmp_path / "out.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        "params/new/w": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "step": 8,
    }


def test_what_is_printed_is_a_recipe_that_does_the_same(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(PRINTED.removesuffix("\n"))
    ways = [(RULES, ()), ((), (file,))]
    plans = [json.loads(run("plan", *rules, "--json", "-", *path, source).stdout) for rules, path in ways]
    assert plans[0]["leaves"] == plans[1]["leaves"]
    assert plans[0]["dropped"] == plans[1]["dropped"]
    assert plans[0]["recipe"]["sha256"] == plans[1]["recipe"]["sha256"]


def test_the_document_stays_alone_on_stdout(source: Path) -> None:
    done = run("plan", *RULES, "--json", "-", source)
    assert json.loads(done.stdout)["summary"]["dropped"] == 1
    assert done.stderr.startswith(PRINTED)


def test_a_rule_that_claims_nothing_is_shown_in_what_was_printed(source: Path) -> None:
    done = run("plan", "-e", "stp = 0", source)
    assert done.exit_code == 2
    assert "(recipe):3:13  rules[0].match" in done.stderr
    assert "did you mean `step`?" in done.stderr


def test_no_rule_and_no_source(source: Path) -> None:
    assert "not a rule: `-e step`" in run("plan", "-e", "step", source).stderr
    assert run("plan", "-e", "step", source).exit_code == 2
    missing = run("plan", source)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "Missing argument 'SRC... [DST]'" in missing.stderr


def test_rules_do_not_go_with_a_recipe(source: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(PRINTED)
    done = run("plan", *RULES, tmp_path / "recipe.yaml", source, tmp_path / "out")
    assert done.exit_code == 2
    assert "the recipe takes 1 source" in done.stderr


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (["keep:params/.*"], {"params/old/w"}),
        (["keep:params/.*", "keep:step"], {"params/old/w", "step"}),
        (["keep:(params|opt)/.*", "drop:opt/.*"], {"params/old/w"}),  # it comes last, wherever it stands
        ([r"s|params/(.*)|\1|", "keep:params/.*"], {"old/w"}),  # the rename claims all that it would keep
        (["step = x + 1", "keep:params/.*"], {"params/old/w", "step"}),
    ],
)
def test_only_what_matches_is_kept(source: Path, tmp_path: Path, rules: list[str], kept: set[str]) -> None:
    options = [word for rule in rules for word in ("-e", rule)]
    done = run("apply", *options, source, tmp_path / "out.safetensors", "--json", "-")
    assert done.exit_code == 0, done.output
    assert set(load_file(tmp_path / "out.safetensors")) == kept
    dropped = {entry["source"] for entry in json.loads(done.stdout)["dropped"]}
    used = {key for leaf in json.loads(done.stdout)["leaves"] for key in leaf["sources"]}
    assert dropped | used == {f"source:{key}" for key in ("params/old/w", "opt/mu", "step")}


def test_a_rename_with_an_expression(source: Path, tmp_path: Path) -> None:
    rules = ("-e", r"s|params/(old)/w|\1/k| = reshape(x, (2, 3)) * len(g[1])")
    assert run("apply", *rules, source, tmp_path / "out.safetensors").exit_code == 0
    assert load_file(tmp_path / "out.safetensors")["old/k"].tolist() == [[0.0, 3.0, 6.0], [9.0, 12.0, 15.0]]
    done = run("plan", "-e", "s|params/old/w|k| = x @", source, "--json", "-")
    problem = json.loads(done.stdout)["error"]["problems"][0]
    assert (problem["code"], problem["path"], problem["line"]) == ("CS024", "(recipe)", 3)


@pytest.mark.parametrize("rules", [["keep:parms/.*"], ["drop:opt/.*", "keep:parms/.*"]])
def test_a_misspelt_rule_that_keeps_is_refused(source: Path, tmp_path: Path, rules: list[str]) -> None:
    options = [word for rule in rules for word in ("-e", rule)]
    done = run("apply", *options, source, tmp_path / "out.safetensors")
    assert done.exit_code == 2
    assert "`params/" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


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
    listed = json.loads(run("inspect", source, *options, "--json", "-").stdout)["leaves"]
    assert {leaf["key"] for leaf in listed} == kept
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


@pytest.mark.parametrize("rule", ["s/zzz/new/", "drop:old", "s|old|${n}|", "s/old/new/g"])
def test_no_other_rule_is_offered_for_parts(source: Path, rule: str) -> None:
    assert "add a g" not in run("plan", "-e", rule, source).stderr
