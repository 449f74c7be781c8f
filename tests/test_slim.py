"""Installations without jax and orbax-checkpoint: every command works there, on every format.

What is run there is a process of its own. By default it is one of this Python in which those libraries cannot
be imported; `make slim` makes a real installation without them and names its Python in SLIM_PYTHON.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.cli.program import cli
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.libraries import DESTINATIONS, ORIGINS
from tests.support.reading import read

ROOT = Path(__file__).parent.parent
BLOCKER = Path(__file__).parent / "support" / "slim"
SLIM_PYTHON = os.environ.get("SLIM_PYTHON")

Done = subprocess.CompletedProcess[str]


def python(directory: Path, *arguments: str) -> Done:
    """Run the slim Python in a directory."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if SLIM_PYTHON is None:
        environment["PYTHONPATH"] = f"{BLOCKER}{os.pathsep}{ROOT}"
    command = [SLIM_PYTHON or sys.executable, *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


def script(directory: Path, code: str, *arguments: str) -> str:
    """What code prints in the slim Python."""
    done = python(directory, "-c", textwrap.dedent(code), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(directory: Path, line: str) -> Done:
    """Run `ckpt-surgery LINE` in the slim Python, where LINE needs no quotes."""
    return python(directory, "-m", "ckpt_surgery", *line.split())


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.slow("starts programs that lack a library")
def test_every_module_but_the_one_for_orbax_can_be_imported(tmp_path: Path) -> None:
    code = """
        import importlib, pkgutil, ckpt_surgery
        for name in ckpt_surgery.__all__:
            getattr(ckpt_surgery, name)
        for module in pkgutil.walk_packages(ckpt_surgery.__path__, "ckpt_surgery."):
            try:
                if not module.name.endswith("__main__"):
                    importlib.import_module(module.name)
            except ImportError as error:
                print(module.name)
    """
    assert script(tmp_path, code).split() == ["ckpt_surgery.orbax"]


# --- commands -------------------------------------------------------------------------------------

HOOKED = "version: 1\nhooks: {}\nrules: [{{match: params/b, value: hooks.same(x)}}]\n"
FILES = {
    "recipe.yaml": """
        version: 1
        rules:
          - {match: 'params/(.*)', to: 'model/\\1', value: "cast(x * 2, 'bfloat16')"}
          - {match: 'key', to: 'random'}
    """,
    "renamed.yaml": "version: 1\nrules: [{match: params/w, to: model/w, value: x.T}]\n",
    "merge.yaml": """
        merge_method: linear
        dtype: float32
        models:
          - {model: hf1, parameters: {weight: 0.25}}
          - {model: hf2, parameters: {weight: 0.75}}
    """,
    "initialized.yaml": """
        version: 1
        rules: [{add: head, value: "init('lecun_normal', (4, 2), 'float32', seed=0)"}]
    """,
    "hooked.yaml": HOOKED.format("at_load.py"),
    "hooked-later.yaml": HOOKED.format("in_calls.py"),
    "at_load.py": "import jax.numpy as jnp\n\ndef same(x):\n    return jnp.asarray(x)\n",
    "in_calls.py": """
        def infer_same(x):
            return x.shape, x.dtype

        def same(x):
            import jax.numpy as jnp
            return jnp.asarray(x)
    """,
}
COMMANDS = (
    *("lint recipe.yaml", "plan recipe.yaml old", "apply recipe.yaml old new --verify full"),
    *("verify new", "inspect new --json", "diff old new --values", "explain recipe.yaml old model/b"),
    *("demo demo", "invert renamed.yaml old --out inverse.yaml"),
    *("apply renamed.yaml old turned", "infer old turned --out inferred.yaml"),
    *("merge merge.yaml merged", "convert merged merged.npz"),
    *("plan recipe.yaml old parts --out plan.json", "apply plan.json parts --shard 0/2"),
    *("apply plan.json parts --shard 1/2", "commit parts"),
    *("recipes", "schema", "completion bash", "env", "clean new --yes"),
)
"""Lines that run in this order, each with exit code 0."""


def save_llama(directory: Path, value: float) -> None:
    """Write a model of Hugging Face that has one tensor."""
    directory.mkdir()
    ORIGINS["safetensors"].save(
        {"model.norm.weight": np.full(4, value, np.float32)}, directory / "model.safetensors"
    )
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 0}))


@pytest.fixture
def here(tmp_path: Path, checkpoint: Callable[[str], Path]) -> Path:
    """Make the directory in which the commands run, with the files and checkpoints that they name."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip())
    (tmp_path / "old").symlink_to(checkpoint("standard"))
    save_llama(tmp_path / "hf1", 1)
    save_llama(tmp_path / "hf2", 5)
    return tmp_path


RUN = """
    import sys
    from click.testing import CliRunner
    from ckpt_surgery.cli.program import cli
    for line in sys.argv[1:]:
        done = CliRunner().invoke(cli, line.split(), prog_name="ckpt-surgery")
        assert done.exit_code == 0, f"{line}\\n{done.output}"
"""


def test_every_command_is_tried() -> None:
    assert {line.split()[0] for line in COMMANDS} == set(cli.list_commands(None))


@pytest.mark.slow("starts programs that lack a library")
def test_commands_do_all_they_do_elsewhere(here: Path) -> None:
    script(here, RUN, *COMMANDS)
    old, new = checkpoints.expected(), checkpoints.restored(here / "new")
    bfloat16 = checkpoints.dtype("bfloat16")
    renamed = {key.replace("params/", "model/").replace("key", "random"): v for key, v in old.items()}
    doubled = {f"model/{n}": (old[f"params/{n}"].astype(np.float32) * 2).astype(bfloat16) for n in "wb"}
    assert_same(new, renamed | doubled)
    assert_same(checkpoints.restored(here / "parts"), new)
    for merged in ("merged", "merged.npz"):
        assert_same(read(here / merged), {"model.norm.weight": np.full(4, 4, np.float32)})


# --- formats --------------------------------------------------------------------------------------

CONVERT = """
    import json, sys, ckpt_surgery
    for source, destination in json.loads(sys.argv[1]):
        ckpt_surgery.convert(source, destination)
"""


def converted(directory: Path, pairs: Mapping[Path, Path]) -> None:
    script(directory, CONVERT, json.dumps([[str(old), str(new)] for old, new in pairs.items()]))


@pytest.mark.slow("starts programs that lack a library")
def test_what_other_libraries_wrote_is_read(tmp_path: Path) -> None:
    sources = {
        name: origin.save(origin.arrays, tmp_path / f"{name}{origin.suffix}")
        for name, origin in ORIGINS.items()
    }
    made = {source: tmp_path / f"{name}-new" for name, source in sources.items()}
    converted(tmp_path, made)
    for source in sources.values():
        assert_same(checkpoints.restored(made[source]), read(source))
    assert_same(read(made[sources["orbax"]]), ORIGINS["orbax"].arrays)


@pytest.mark.slow("starts programs that lack a library")
def test_what_is_written_other_libraries_read(tmp_path: Path) -> None:
    """Twice from Orbax's own format: once as it stores arrays, once from what another format holds."""
    arrays = ORIGINS["zarr3"].arrays
    source = ORIGINS["orbax"].save(arrays, tmp_path / "source")
    for name, load in DESTINATIONS.values():
        converted(tmp_path, {source: tmp_path / name})
        assert_same(load(tmp_path / name), arrays)


@pytest.mark.slow("starts programs that lack a library")
def test_every_layout_and_dtype_of_orbax_is_read_and_rewritten(
    tmp_path: Path, checkpoint: Callable[[str], Path]
) -> None:
    layouts = [name for name in checkpoints.LAYOUTS if name != "processes"]
    tree = {name: np.zeros(3).astype(checkpoints.dtype(name)) for name in checkpoints.DTYPES}
    checkpoints.save_pytree(tmp_path / "dtypes", tree)
    made = {checkpoint(name): tmp_path / name for name in layouts}
    converted(tmp_path, {**made, tmp_path / "dtypes": tmp_path / "new"})
    assert_same(checkpoints.restored(tmp_path / "new"), tree)
    for name in layouts:
        strings = name in checkpoints.WITH_STRINGS
        assert_same(checkpoints.restored_by_all(tmp_path / name, strings), checkpoints.expected(strings))
    for name in ("plain-zarr2", "ocdbt-zarr3"):
        assert sharding_of(tmp_path / name) == sharding_of(checkpoint(name)) != {}


def sharding_of(path: Path) -> Any:
    return json.loads((path / "_sharding").read_text())


# --- what needs a missing library -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("plan initialized.yaml old", 2),
        ("apply initialized.yaml old out", 2),
        ("explain initialized.yaml old head", 2),
        ("apply hooked.yaml old out --allow-hooks", 2),
        ("apply hooked-later.yaml old out --allow-hooks", 1),
        ("apply p.json out", 2),  # a plan that was saved elsewhere
        ("apply p.json out --shard 1/2", 2),
    ],
)
def test_a_command_says_what_to_install(line: str, code: int, here: Path) -> None:
    if "p.json" in line:
        ckpt_surgery.plan(here / "initialized.yaml", here / "old", dst=here / "out", out=here / "p.json")
    done = run(here, line)
    assert_tells(done.stderr)
    assert done.returncode == code
    assert not (here / "out").exists()


def assert_tells(text: str) -> None:
    assert text.count("jax") >= 2
    assert text.count("`pip install jax`") == 1
    assert not re.search("Traceback|internal error|not a plan", text)


CALLS = """
    import numpy as np, ckpt_surgery
    calls = {
        "restore": lambda: ckpt_surgery.restore(None, "old"),
        "target": lambda: ckpt_surgery.restore(None, "old", target={"a": np.ones(3)}),
        "plan": lambda: ckpt_surgery.plan("recipe.yaml", {"a": np.ones(3)}),
        "apply": lambda: ckpt_surgery.apply("recipe.yaml", {"a": np.ones(3)}, dst="out"),
        "inspect": lambda: ckpt_surgery.inspect({"a": np.ones(3)}),
        "diff": lambda: ckpt_surgery.diff("old", {"a": np.ones(3)}),
        "transformations": lambda: ckpt_surgery.apply_transformations("old", {}, {"a": ...}),
        "transforms": lambda: ckpt_surgery.from_orbax_transforms({"a": 1}),
        "original": lambda: ckpt_surgery.from_orbax_transforms({}, original={"a": np.ones(3)}),
    }
    for name, call in calls.items():
        try:
            call()
            print(name, "succeeds")
        except ckpt_surgery.SurgeryError as error:
            print(name, type(error).__name__, *str(error).split("\\n"))
"""


def test_calls_say_what_to_install(here: Path) -> None:
    lines = script(here, CALLS).splitlines()
    assert len(lines) == 9
    for line in lines:
        assert line.split()[1] == "MissingLibraryError", line
        assert_tells(line)
    assert not (here / "out").exists()


def test_the_module_for_orbax_says_what_to_install(tmp_path: Path) -> None:
    code = """
        try:
            import ckpt_surgery.orbax
        except ImportError as error:
            print(error)
    """
    told = script(tmp_path, code)
    assert "ckpt_surgery.orbax" in told
    assert "`pip install orbax-checkpoint`" in told


# --- how it is installed --------------------------------------------------------------------------


def test_the_page_installs_all_dependencies_but_jax_and_orbax() -> None:
    page = (ROOT / "docs" / "ci.md").read_text()
    listed = re.search(r"^pip install (.*)\npip install --no-deps ckpt-surgery$", page, re.MULTILINE)
    assert listed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]}
    assert set(listed[1].split()) == named - {"jax", "orbax-checkpoint"}
    assert {"jax", "orbax-checkpoint"} < named
