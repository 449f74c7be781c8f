"""Leaves under two names: what proves that they are the same, and what is only a guess."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.report.renames import Proof, Renamed, renamed_leaves
from tests.support import checkpoints
from tests.support.command_line import run
from tests.support.leaves import array_leaf


def pairs(renamed: tuple[Renamed, ...]) -> list[tuple[str, str, str]]:
    return [(one.a.key.text, one.b.key.text, one.proof) for one in renamed]


def guessed(a: str, b: str) -> list[tuple[str, str]]:
    found = renamed_leaves([array_leaf(key) for key in a.split()], [array_leaf(key) for key in b.split()])
    assert all(one.proof is Proof.NAMES for one in found)
    return [(one.a.key.text, one.b.key.text) for one in found]


def test_names_are_guessed_where_they_leave_no_choice() -> None:
    assert guessed("p/l_0/w p/l_1/w", "m.b.1.w m.b.0.w") == [("p/l_0/w", "m.b.0.w"), ("p/l_1/w", "m.b.1.w")]
    assert guessed("a/q a/k", "b/q b/k") == [("a/q", "b/q"), ("a/k", "b/k")]
    assert guessed("a/w", "something/else") == [("a/w", "something/else")]  # the only ones of their shape


def test_names_that_leave_a_choice_are_not_guessed() -> None:
    assert guessed("a/q a/k", "b/wq b/wk") == []
    assert guessed("a/w", "b/w c/w") == []
    assert guessed("a/w b/w", "c/w") == []
    assert guessed("l_0/w l_1/w", "l_2/w l_3/w") == []
    assert guessed("head/w", "hidden/w tail/w") == []  # a common beginning is no reason
    assert guessed("a/mlp/up/w b/up/w", "c/mlp/up/w d/w") == [("a/mlp/up/w", "c/mlp/up/w")]
    assert renamed_leaves([array_leaf("a/w", (2, 3))], [array_leaf("b/w", (3, 2))]) == ()


def test_with_values_nothing_but_values_counts() -> None:
    ours, theirs = [array_leaf(key) for key in ("a/q", "a/k")], [array_leaf(key) for key in ("b/q", "b/x")]
    equal = {("a/q", "b/x")}
    found = renamed_leaves(ours, theirs, lambda a, b: (a.key.text, b.key.text) in equal)
    assert pairs(found) == [("a/q", "b/x", "values")]
    assert pairs(renamed_leaves(ours, theirs, lambda a, b: True)) == [
        ("a/q", "b/q", "values"),
        ("a/k", "b/x", "values"),
    ]
    # Equal leaves with names that are as similar: either may have become `layers/w`.
    ours, theirs = [array_leaf(key) for key in ("enc/w", "dec/w")], [array_leaf("layers/w")]
    assert renamed_leaves(ours, theirs, lambda a, b: True) == ()
    ours, theirs = [array_leaf(key) for key in ("ema/w", "enc/w")], [array_leaf("encoder/w")]
    assert pairs(renamed_leaves(ours, theirs, lambda a, b: True)) == [("enc/w", "encoder/w", "values")]


RENAME = ("-e", r"s|p/l_(\d+)/(.*)|m/b_\1/\2|")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers whose kernels differ, and whose norms are all ones."""
    rng = np.random.default_rng(0)
    layers = {
        f"l_{n}": {"w": rng.normal(size=(64, 96)).astype(np.float32), "norm": np.ones(64, np.float32)}
        for n in range(3)
    }
    path = tmp_path_factory.mktemp("renames") / "old"
    with checkpoints.quiet():
        ckpt_surgery.apply({"version": 1}, {"p": layers, "step": 3}, dst=path)
    return path


@pytest.mark.parametrize("format", ["orbax", "safetensors", "npz", "zarr"])
def test_a_rename_into_another_format(old: Path, tmp_path: Path, format: str) -> None:
    new = tmp_path / "new"
    assert run("apply", *RENAME, old, new, "--format", format, "--link-mode", "copy").exit_code == 0
    names = [(f"p/l_{n}/{x}", f"m/b_{n}/{x}") for n, x in itertools.product(range(3), ("norm", "w"))]
    found = ckpt_surgery.diff(old, new, values=True)
    assert sorted((one.a.key.text, one.b.key.text) for one in found.renamed) == names
    assert {one.proof for one in found.renamed} <= {Proof.VALUES, Proof.STORED}
    assert (found.different, len(found.only_a), len(found.only_b)) == (True, 6, 6)


def test_links_prove_a_rename_without_reading_values(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert run("apply", *RENAME, old, new, "--link-mode", "hardlink").exit_code == 0
    assert {one.proof for one in ckpt_surgery.diff(old, new).renamed} == {Proof.STORED}
    text = run("diff", old, new).stdout
    assert "renamed      p/l_{0..2}/w → m/b_{0..2}/w  3 × f32[64,96]\n" in text
    assert text.endswith("different: 6 renamed; 1 leaf in both\n")
    document = json.loads(run("diff", old, new, "--json", "-", "--exit-code").stdout)
    assert document["renamed"][0]["proof"] == "stored"
    assert (document["different"], len(document["only_a"])) == (True, 6)


def test_a_guess_says_that_it_is_one(old: Path, tmp_path: Path) -> None:
    """A layer was changed before it was renamed: by its name it is the same, by its values it is not."""
    changed, new = tmp_path / "changed", tmp_path / "new"
    assert run("apply", "-e", "p/l_1/w = x * 2", old, changed).exit_code == 0
    assert run("apply", *RENAME, changed, new).exit_code == 0
    # Workers put arrays into shared files as they get to them: what else is linked depends on that.
    proofs = {one.a.key.text: one.proof for one in ckpt_surgery.diff(old, new).renamed}
    assert proofs["p/l_1/w"] is Proof.NAMES
    assert len(proofs) == 6
    text = run("diff", old, new).stdout
    assert "renamed?     p/l_" in text
    assert "(--values compares them)" in text
    text = run("diff", old, new, "--values").stdout
    assert "only in A    p/l_1/w" in text
    assert "renamed      p/l_{0,2}/w → m/b_{0,2}/w" in text
    assert "renamed?" not in text
    assert text.endswith("different: 1 only in A, 1 only in B, 5 renamed; 1 leaf in both\n")


def test_very_many_leaves_of_one_shape() -> None:
    """As the experts of a large model: only those with the same numbers are compared."""
    ours = [array_leaf(f"a/{i}/e_{j}") for i in range(20) for j in range(20)]
    theirs = [array_leaf(f"b/{i}/e_{j}") for i in range(20) for j in range(20)]
    compared = []

    def same(a: Leaf, b: Leaf) -> bool:
        compared.append((a.key.text, b.key.text))
        return True

    found = renamed_leaves(ours, theirs, same)
    assert len(found) == len(compared) == 400
    assert all(one.a.key.text[1:] == one.b.key.text[1:] for one in found)
