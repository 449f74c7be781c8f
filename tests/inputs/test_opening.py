"""What is given as a checkpoint: a path or a tree."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.inputs.opening import in_memory, on_disk, open_input, without_values
from ckpt_surgery.inputs.request import InMemory

TREE = {"a": np.arange(3), "l": [np.ones(2, np.float32), None], "s": "text"}


def test_paths_and_trees(model: Path) -> None:
    file, tree = open_input(str(model)), open_input(InMemory(TREE))
    assert (file.format, tree.format, tree.path) == ("safetensors", "tree", "(tree)")
    assert (in_memory(file), in_memory(tree), on_disk([file, tree])) == (False, True, [file])
    assert list(tree.leaves()) == ["a", "l/0", "l/1", "s"]


def test_a_path_can_be_a_text_of_numpy(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=TREE["a"])
    source, new = np.str_(tmp_path / "a.npz"), np.str_(tmp_path / "new")
    ckpt_surgery.convert(source, new)
    assert [len(ckpt_surgery.inspect(path).leaves) for path in (source, new)] == [1, 1]
    assert not ckpt_surgery.verify(new).flaws


@pytest.mark.parametrize("option", [{"step": 3}, {"item": "x"}, {"src_format": "npz"}])
def test_a_tree_has_neither_steps_nor_items(option: Any) -> None:
    (name,) = option
    with pytest.raises(UsageError, match=f"a tree in memory: it has no {name.removeprefix('src_')}"):
        open_input(InMemory(TREE), **option)


def test_shapes_alone_are_no_values(model: Path) -> None:
    mixed = {"a": jax.ShapeDtypeStruct((2,), np.float32), "b": np.zeros(2)}
    assert without_values(open_input(InMemory(mixed))) == {"a"}
    assert without_values(open_input(str(model))) == frozenset()


def test_two_trees_are_two_sources_even_if_they_are_equal() -> None:
    recipe = {"version": 1, "sources": ["one", "two"], "rules": [{"match": "a", "source": "two", "to": "b"}]}
    plan = ckpt_surgery.plan(recipe, {"a": np.ones(2)}, {"a": np.ones(2)})
    assert ([step.leaf.key.text for step in plan.steps], plan.warnings) == (["b", "a"], ())


def test_a_config_in_the_working_directory_is_not_that_of_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"n": 3}')
    monkeypatch.chdir(tmp_path)
    recipe = {"version": 1, "params": {"n": {"default": 1, "config": "n"}}, "rules": []}
    plan = ckpt_surgery.plan(recipe, TREE)
    assert [param.value for param in plan.params] == [1]
    asked = {"version": 1, "rules": [{"match": "a", "value": "x * config['n']"}]}
    with pytest.raises(ckpt_surgery.SurgeryError, match=r"\(tree\) is in memory, where no config is"):
        ckpt_surgery.plan(asked, TREE)


def test_a_plan_from_a_tree_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the plan cannot be saved"):
        ckpt_surgery.plan(None, TREE, out=tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []
