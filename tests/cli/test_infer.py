"""`infer`: what goes to stdout and what to stderr, and how it ends."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.command_line import run
from tests.support.documents import check_document


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`old`, what a recipe makes of it, and what cannot be decided."""
    monkeypatch.chdir(tmp_path)
    layers = {f"h.{i}.w": normal(4, 6, seed=i) for i in range(3)}
    old = {**layers, "wte": normal(7, 4), "spare": normal(2, 2)}
    new = {"layers/kernel": np.stack([one.T.copy() for one in layers.values()]), "embed": old["wte"]}
    save_file(old, "old.safetensors")
    save_file(new, "new.safetensors")
    save_file({**new, "q": normal(2, 2, seed=5)}, "open.safetensors")
    return tmp_path


def test_the_recipe_goes_to_stdout_and_all_else_to_stderr() -> None:
    done = run("infer", "old.safetensors", "new.safetensors")
    assert done.exit_code == 0
    assert done.stdout == (
        "# yaml-language-server: $schema=recipe.schema.json\n"
        "# Drafted by `ckpt-surgery infer old.safetensors new.safetensors`.\n"
        "#   ckpt-surgery apply THIS old.safetensors DST\n"
        "# Values: those of TARGET are in SRC.\n"
        "# Evidence: values, except where a comment says otherwise.\n"
        "version: 1\n"
        "unmatched: error\n"
        "rules:\n"
        "  - {match: wte, to: embed}\n"
        "  - match: 'h\\.(?P<n>\\d+)\\.w'\n"
        "    to: layers/kernel\n"
        "    by: int(n)\n"
        "    value: \"rearrange(stack(xs), 'l a b -> l b a')\"\n"
        "  - {match: spare, drop: true}\n"
    )
    assert done.stderr == (
        "the target's values are in the source\n"
        "2 of 2 leaves: values\n"
        "dropped: `spare`\n"
        "decided  3 rules · planned · every element of 2 leaves compared\n"
    )
    quiet = run("--quiet", "infer", "old.safetensors", "new.safetensors")
    assert (quiet.exit_code, quiet.stdout) == (0, done.stdout)
    assert "planned" not in quiet.stderr
    of_json = run("infer", "old.safetensors", "new.safetensors", "--json", "-")
    document = json.loads(of_json.stdout)
    check_document("infer", document)
    assert (document["recipe"], of_json.stderr) == (done.stdout, done.stderr)
    assert (document["values"], document["dropped"], document["undecided"]) == ("shared", ["spare"], [])
    assert [leaf["key"] for leaf in document["leaves"]] == ["embed", "layers/kernel"]


def test_with_out_the_summary_goes_to_stdout_and_the_recipe_makes_the_target() -> None:
    done = run("infer", "old.safetensors", "new.safetensors", "--out", "draft.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith(" · planned · every element of 2 leaves compared · draft.yaml\n")
    assert run("apply", "draft.yaml", "old.safetensors", "made.safetensors").exit_code == 0
    assert run("diff", "new.safetensors", "made.safetensors", "--values", "--exit-code").exit_code == 0


def test_what_is_not_decided_ends_with_3_and_does_not_run() -> None:
    done = run("infer", "old.safetensors", "open.safetensors", "--out", "draft.yaml")
    assert (done.exit_code, done.stderr) == (3, "")
    assert "not decided: `q`: " in done.stdout
    assert done.stdout.endswith("does not run as it is · draft.yaml\n")
    assert "# not decided: q: " in Path("draft.yaml").read_text()
    assert run("plan", "draft.yaml", "old.safetensors").exit_code == 2


def test_many_undecided_leaves_are_counted_and_the_summary_fits_80_columns() -> None:
    names = [*"abcdefghijk", "a/very/long/key/of/a/leaf/that/nothing/in/the/source/fits"]
    many = {name: normal(2, 2, seed=9 + i) for i, name in enumerate(names)}
    save_file({**load_file("new.safetensors"), **many}, "many.safetensors")
    done = run("infer", "old.safetensors", "many.safetensors", COLUMNS="80")
    assert done.exit_code == 3
    assert max(map(len, done.stderr.splitlines())) <= 80
    assert done.stderr.count("not decided: `") == 10
    assert "not decided: and 2 more; the recipe lists all\n" in done.stderr
    assert done.stdout.count("# not decided: ") == 12


# --- hints ------------------------------------------------------------------------------------------------


@pytest.fixture
def listed() -> dict[str, np.ndarray]:
    """`square`, matrices that lie turned in the model that `square.json` lists, which is returned."""
    old = {f"h.{i}.{name}.w": normal(4, 4, seed=i + ord(name)) for i in range(3) for name in "qk"}
    new = {f"layers_{i}/{name}/kernel": old[f"h.{i}.{name}.w"].T.copy() for i in range(3) for name in "qk"}
    save_file(old, "square.safetensors")
    listing = [{"key": key, "shape": one.shape, "dtype": "float32"} for key, one in new.items()]
    Path("square.json").write_text(json.dumps(listing))
    return new


def test_what_a_draft_says_on_the_command_line_decides_it(listed: dict[str, np.ndarray]) -> None:
    arguments = ("infer", "square.safetensors", "square.json")
    done = run(*arguments, "--json", "-")
    document = json.loads(done.stdout)
    check_document("infer", document)
    assert (done.exit_code, len(document["undecided"])) == (3, 2)
    (rule,) = document["undecided"][0]["candidates"][1]["rules"]
    line = next(line for line in document["recipe"].splitlines() if line.endswith(" = x.T'"))
    assert shlex.split(line.removeprefix("#")) == ["-e", rule]
    done = run(*arguments, "-e", rule, "--out", "draft.yaml", "--json", "found.json")
    assert done.exit_code == 0, done.output
    document = json.loads(Path("found.json").read_text())
    check_document("infer", document)
    assert [leaf["evidence"] for leaf in document["leaves"]].count("hint") == 3
    assert (document["rules"][0]["evidence"], document["rules"][0]["claims"]) == ("hint", 3)
    assert "3 of 6 leaves: hint\n" in done.stdout
    assert run("apply", "draft.yaml", "square.safetensors", "made.safetensors").exit_code == 0
    made = load_file("made.safetensors")
    assert all((made[key] == one).all() for key, one in listed.items())


def test_a_recipe_of_hints_and_rules_behind_it(listed: dict[str, np.ndarray]) -> None:
    Path("part.yaml").write_text(
        "version: 1\nrules:\n# mine\n- {match: 'h\\.0\\.q\\.w', to: layers_0/q/kernel}\n"
    )
    arguments = ("infer", "square.safetensors", "square.json", "--recipe", "part.yaml")
    done = run(*arguments, "-e", r"s|h\.(.)\.k\.w|layers_\1/k/kernel| = x.T")
    rule = "- {match: 'h\\.0\\.q\\.w', to: layers_0/q/kernel}"
    assert f"rules:\n  # mine\n  # hint\n  {rule}\n  # hint\n" in done.stdout


def test_the_recipe_of_hints_is_not_written_over(listed: dict[str, np.ndarray]) -> None:
    Path("part.json").write_text(text := '{"version": 1, "rules": []}')
    arguments = ("infer", "square.safetensors", "square.json", "--recipe", "part.json", "--overwrite")
    for option in ("--json", "--out"):
        assert run(*arguments, option, "part.json").exit_code == 2
    assert Path("part.json").read_text() == text
