"""Files that are given as a recipe: their text, and those that are something else."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.core.errors import Code, RecipeError, SurgeryError, UsageError
from ckpt_surgery.language.files import load_document, read_text
from ckpt_surgery.language.loading import load_recipe, parse_recipe
from ckpt_surgery.language.yaml.parsing import MAX_BYTES
from ckpt_surgery.merging.reading import parse_config, read_config
from tests.support.command_line import run

RECIPE = "version: 1\nrules:\n  - {match: a, to: b}\n"
MERGE = {"merge_method": "linear", "models": [{"model": "m", "parameters": {"weight": 1.0}}]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(RECIPE)
    save_file({"a": np.arange(3, dtype=np.float32)}, "m.safetensors")
    return tmp_path


def test_each_is_called_what_it_is_in_one_problem() -> None:
    for document, what, hint in (
        (MERGE, "a configuration of mergekit", "`ckpt-surgery merge file DST`"),
        ({"slices": []}, "a configuration of mergekit", "`ckpt-surgery merge file DST`"),
        ({"schema": 1, "recipe": {}, "summary": {}, "leaves": []}, "a report about a plan", "`out=FILE`"),
        ({"schema": 1, "leaves": []}, "a report of ckpt-surgery", "`target=file`"),
        ({"weight_map": {"a": "b.safetensors"}}, "the index of a checkpoint", "the directory"),
        ({"model_type": "llama"}, "the config of a model", "`config=FILE`"),
        ({"peft_type": "LORA", "r": 8}, "the config of a model", "`config=FILE`"),
    ):
        with pytest.raises(RecipeError) as raised:
            parse_recipe(json.dumps(document), "file")
        (problem,) = raised.value.problems
        assert problem.code is Code.UNREADABLE
        assert what in problem.message
        assert hint in (problem.hint or "")


def test_a_recipe_with_a_strange_field_is_a_recipe_and_is_not_merged() -> None:
    with pytest.raises(RecipeError) as raised:
        parse_recipe(f"{RECIPE}models: []\n", "r.yaml")
    assert [problem.code for problem in raised.value.problems] == [Code.UNKNOWN_FIELD]
    with pytest.raises(RecipeError, match=r"`ckpt-surgery apply r\.yaml SRC\.\.\. DST`") as raised:
        parse_config(RECIPE, "r.yaml")
    assert [problem.code for problem in raised.value.problems] == [Code.UNREADABLE]


def test_a_checkpoint_in_the_place_of_the_recipe(here: Path) -> None:
    done = run("apply", "m.safetensors", "r.yaml", "out.npz")
    assert done.exit_code == 2
    assert "the recipe comes first" in done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["m.safetensors", "r.yaml"]


def test_a_report_of_a_plan_is_not_applied_and_the_hint_works(here: Path) -> None:
    assert run("plan", "r.yaml", "m.safetensors", "out.safetensors", "--json", "p.json").exit_code == 0
    for command in (("apply", "p.json", "out.safetensors"), ("lint", "p.json")):
        done = run(*command)
        assert done.exit_code == 2
        assert "`--out FILE`" in done.stderr + done.stdout
        assert len(done.stderr.splitlines()) <= 2
    with pytest.raises(SurgeryError, match="out=FILE"):
        ckpt_surgery.apply("p.json", dst="out")
    assert run("plan", "r.yaml", "m.safetensors", "out.safetensors", "--out", "saved.json").exit_code == 0
    assert run("apply", "saved.json", "out.safetensors").exit_code == 0
    assert load_file("out.safetensors")["b"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("stack-layers", "@stack-layers"),
        ("stack_layers", "@stack-layers"),
        ("stack-layers.yaml", "@stack-layers"),
        ("recipes/lora-merge.yaml", "@lora-merge"),
        ("stack-layer", "@stack-layers"),
        ("r.yml", "r.yaml"),
    ],
)
def test_a_recipe_that_is_not_found(here: Path, given: str, meant: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_recipe(given)
    assert f"did you mean `{meant}`" in raised.value.problems[0].message
    load_recipe(meant)


def test_names_of_nothing_get_no_guess(here: Path) -> None:
    with pytest.raises(UsageError, match=r"^recipe not found: zzz\.yaml$"):
        load_recipe("zzz.yaml")
    with pytest.raises(UsageError, match=r"^configuration not found: zzz\.yaml$"):
        read_config("zzz.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="recipe not found:"):
        read_text(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_text("a\0b")


def test_a_directory_in_the_place_of_a_recipe_may_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a directory;.*\n.*`convert`"):
        read_text(tmp_path)
    (tmp_path / "r.yaml").touch()
    with pytest.raises(UsageError, match=rf"{tmp_path}/a\.yaml"):
        read_text(tmp_path)


@pytest.mark.each
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: \xff", "not UTF-8 text: byte 3 is 0xff"),
        (b"a: 1\nb: no\n", "r.yaml:2:4(.|\n)*`no` means different things"),
        ("a: 1".encode("utf-16"), "not UTF-8 text: byte 0 is 0xff"),
        (b"\x00" * 10, "U\\+0000 is not allowed"),
        (b"\x93NUMPY\x01\x00", "not UTF-8 text"),
        (b"x" * (MAX_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_files_that_are_not_documents(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(data)
    with pytest.raises(RecipeError, match=message):
        load_document(path)
