"""What may not be read is exit 5 with its path, whichever file or directory it is, in every format."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.formats.tensorflow.bundles import bundle, crc, entry
from tests.support.checkpoints import save_pytree
from tests.support.command_line import run
from tests.support.libraries import ORIGINS
from tests.support.models import save_model
from tests.support.slow import some
from tests.support.trees import flattened
from tests.support.unprivileged import Case, Outcome, run_all

TREE = {"a": {"w": np.arange(3000, dtype=np.float32)}, "b": np.arange(4, dtype=np.int32)}
"""An array that Orbax keeps in a file of its own, and one in the index."""


def save_orbax(ocdbt: bool) -> Callable[[Path], Path]:
    def save(path: Path) -> Path:
        save_pytree(path / "src", TREE, ocdbt)
        return path / "src"

    return save


def converted(name: str) -> Callable[[Path], Path]:
    def save(path: Path) -> Path:
        done = run("convert", save_model(path / "model"), path / name)
        assert done.exit_code == 0, done.stderr
        return path / name

    return save


def save_shards(path: Path) -> Path:
    options = ("--format", "safetensors", "--shard-size", "50")
    done = run("convert", save_model(path / "model"), path / "x", *options)
    assert done.exit_code == 0, done.stderr
    return path / "x"


def of_library(name: str) -> Callable[[Path], Path]:
    """As the format's own library writes it."""
    return lambda path: ORIGINS[name].save(flattened(TREE), path / f"x{ORIGINS[name].suffix}")


def save_tensorflow(path: Path) -> Path:
    return bundle(path, [(b"w", entry(checksum=crc(b"ab")))])


LAYOUTS: Mapping[str, Callable[[Path], Path]] = {
    "orbax": save_orbax(True),
    "orbax-files": save_orbax(False),
    "safetensors": converted("x.safetensors"),
    "safetensors-shards": save_shards,
    "flax": converted("x.msgpack"),
    "npz": converted("x.npz"),
    "zarr": converted("x.zarr"),
    **{name: of_library(name) for name in ("t5x", "npy", "torch", "dcp")},
    "tensorflow": save_tensorflow,
}


NOT_NEEDED = ("commit_success.txt", "ocdbt.process_0", "ckpt_surgery.json")
"""Names of what is never read, or not all of it, to list a checkpoint and to read its values."""


def assert_refused(outcome: Outcome, place: Path) -> None:
    """One paragraph that names the place, or something in it, with the reason and what to do."""
    assert outcome.exit_code == 5, outcome
    assert outcome.stdout == ""
    told = re.fullmatch(
        r"Error: (\S+) cannot be (read|listed): Permission denied\n"
        r"  Whoever runs this has to be allowed to read it, and to enter the directories above it\.\n",
        outcome.stderr,
    )
    assert told is not None, outcome.stderr
    assert Path(told[1]).is_relative_to(place)


@pytest.mark.slow("starts programs of another user")
@pytest.mark.parametrize("layout", some(LAYOUTS))
def test_each_file_and_directory_of_a_source(layout: str, tmp_path: Path) -> None:
    source = LAYOUTS[layout](tmp_path)
    places = [source, *sorted(source.rglob("*"))]
    open_, *closed = run_all([Case(place, ["inspect", source, "--stats"]) for place in [None, *places]])
    assert open_.exit_code == 0, open_.stderr
    for place, outcome in zip(places, closed, strict=True):
        if not (outcome == open_ and any(name in place.parts for name in NOT_NEEDED)):
            assert_refused(outcome, place)


@pytest.mark.slow("starts programs of another user")
def test_each_file_that_a_command_names(model: Path, tmp_path: Path) -> None:
    recipe, hooks, listing = (tmp_path / name for name in ("r.yaml", "hooks.py", "target.json"))
    recipe.write_text("version: 1\nhooks: hooks.py\nrules: [{match: b, value: hooks.same(x)}]\n")
    hooks.write_text("def same(x):\n    return x\n")
    config = model.with_name("config.json")
    config.write_text('{"layers": 2}')
    assert run("inspect", model, "--json", listing).exit_code == 0
    plain, asking = tmp_path / "plain.yaml", tmp_path / "asking.yaml"
    plain.write_text("version: 1\n")
    asking.write_text("version: 1\nrules:\n- match: b\n  when: has(config['layers'])\n")
    saved, folder, dst = tmp_path / "plan.json", tmp_path / "inside", tmp_path / "x.safetensors"
    assert run("plan", plain, model, "--out", saved).exit_code == 0
    folder.mkdir()
    (folder / "r.yaml").write_text("version: 1\n")
    cases = [
        Case(recipe, ["lint", recipe]),
        Case(recipe, ["plan", recipe, model]),
        Case(folder, ["apply", folder / "r.yaml", model, dst]),
        Case(hooks, ["plan", recipe, model, "--allow-hooks"]),
        Case(hooks, ["apply", recipe, model, dst, "--allow-hooks"]),
        Case(listing, ["plan", plain, model, "--target", listing]),
        Case(config, ["apply", plain, model, dst]),
        Case(config, ["convert", model, tmp_path / "x.npz"]),
        Case(config, ["plan", asking, model]),
        Case(saved, ["apply", saved, tmp_path / "x"]),
        Case(model, ["apply", saved, tmp_path / "x"]),
        Case(model, ["diff", model, model]),
        Case(model.parent, ["convert", model, dst]),
        Case(model.parent, ["plan", plain, model, "--target", model]),
    ]
    for case, outcome in zip(cases, run_all(cases), strict=True):
        assert case.closed is not None
        assert_refused(outcome, case.closed)
    assert not dst.exists()


@pytest.mark.slow("starts programs of another user")
def test_a_data_file_that_would_be_linked_or_verified(tmp_path: Path) -> None:
    source = converted("x")(tmp_path)
    data = max((path for path in (source / "d").iterdir()), key=lambda path: path.stat().st_size)
    links = [["convert", source, tmp_path / mode, "--link-mode", mode] for mode in ("auto", "copy")]
    cases = [Case(data, command) for command in [*links, ["verify", source]]]
    for outcome in run_all(cases):
        assert outcome.exit_code == 5, outcome
        assert f"{data} cannot be read: Permission denied\n  Whoever runs this has to be" in outcome.stderr
    assert not (tmp_path / "auto").exists()


def test_a_directory_that_can_only_be_listed_or_only_be_entered(tmp_path: Path) -> None:
    """The names are known in the one, the files can be opened in the other."""
    listed, entered = (tmp_path / name for name in ("listed", "entered"))
    for folder in (listed, entered):
        save_model(folder)
    cases = [Case(None, ["inspect", listed]), Case(None, ["inspect", entered])]
    cases += [Case(None, ["inspect", entered / "model.safetensors"])]
    listed.chmod(0o400)
    entered.chmod(0o100)
    try:
        first, second, third = run_all(cases)
    finally:
        for folder in (listed, entered):
            folder.chmod(0o700)
    assert_refused(first, listed)
    assert_refused(second, entered)
    assert third.exit_code == 0, third.stderr
