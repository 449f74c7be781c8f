"""What people wait for at start-up: nothing heavy is imported until something needs it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckpt_surgery.formats.known import formats

HEAVY = {"jax", "jaxlib", "orbax", "tensorstore", "torch", "flax", "tqdm", "IPython"}

RECIPE = """\
version: 1
rules:
  - match: 'a/(?P<n>.*)'
    to: 'b/${n}'
    value: cast(x * 2, 'bfloat16')
  - add: 'c'
    value: init('lecun_normal', (4, 4), 'float32', seed=0)
"""


def modules_after(code: str, *arguments: str) -> set[str]:
    """Every module that has been imported once `code` has run in a fresh interpreter."""
    script = (
        "import os, sys\n"
        "os._exit = sys.exit\n"  # which is how the program ends
        "try:\n"
        f"    {code}\n"
        "except SystemExit as done:\n"
        "    assert not done.code, done.code\n"
        "print('\\nmodules:', *sys.modules)\n"
    )
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, told, names = done.stdout.rpartition("modules:")
    assert told
    return set(names.split())


def loaded_by(code: str, *arguments: str) -> set[str]:
    """Which heavy libraries that imports."""
    return HEAVY & {name.partition(".")[0] for name in modules_after(code, *arguments)}


COMMAND_LINE = "from ckpt_surgery.cli import main; main()"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["apply", "--help"], ["inspect", "--help"], ["schema"]],
    ids=" ".join,
)
def test_what_needs_no_checkpoint_imports_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_by(COMMAND_LINE, *arguments) == set()


def test_lint_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    assert loaded_by(COMMAND_LINE, "lint", str(tmp_path / "recipe.yaml")) == set()


@pytest.mark.parametrize(
    "module",
    [
        "ckpt_surgery",
        "ckpt_surgery.language.loading",
        "ckpt_surgery.engine.staging.local",
        "ckpt_surgery.errors",
        "ckpt_surgery.api.applying",
        "ckpt_surgery.api.packaged_recipes",
        "ckpt_surgery.system.progress_bars",
        "ckpt_surgery.api.restoring",
        "ckpt_surgery.api.migrating",
        "ckpt_surgery.migration.t5x.maps",
    ],
)
def test_importing_the_library_imports_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}") == set()


def test_the_probe_itself() -> None:
    assert loaded_by("import tensorstore") == {"tensorstore"}


@pytest.mark.parametrize("program", [["-m", "ckpt_surgery"], ["-c", COMMAND_LINE]])
def test_help_does_without_the_libraries_that_only_commands_need(program: list[str]) -> None:
    """numpy and pydantic cost more than the whole of `--help` may take."""
    command = [sys.executable, "-X", "importtime", *program, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in imported
    assert imported.isdisjoint({"numpy", "pydantic", "ml_dtypes", "regex", "rich", *HEAVY})
    assert "ckpt_surgery.report" not in done.stderr


PLANNING = {
    "api.applying",
    "inputs.preparing",
    "runs",
    "engine",
    "formats",
    "planner",
    "report.problems",
    "report.values",
}
"""What only those commands need of this package that open a checkpoint."""


@pytest.mark.parametrize("command", ["lint", "schema", "recipes"])
def test_what_editors_run_all_the_time_imports_nothing_of_plans(command: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    paths = [str(tmp_path / "recipe.yaml")] if command == "lint" else []
    loaded = modules_after(COMMAND_LINE, command, *paths)
    assert f"ckpt_surgery.cli.commands.{command}" in loaded
    assert {f"ckpt_surgery.{module}" for module in PLANNING}.isdisjoint(loaded)


def test_listing_recipes_needs_no_library() -> None:
    loaded = modules_after(COMMAND_LINE, "recipes")
    assert loaded.isdisjoint({"numpy", "pydantic", "yaml", "regex", "ckpt_surgery.language.loading"})


@pytest.mark.parametrize("line", ["ckpt-surgery ap", "ckpt-surgery apply --ov", "ckpt-surgery apply @hf"])
def test_completion_needs_no_library(line: str) -> None:
    """People wait for it with a finger on the key."""
    asked = {"_CKPT_SURGERY_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "0"}
    loaded = modules_after(f"import os; os.environ.update({asked}); {COMMAND_LINE}")
    assert "ckpt_surgery.cli.parameters.bash_completion" in loaded
    first = {name.partition(".")[0] for name in loaded}
    assert first.isdisjoint({"numpy", "pydantic", "yaml", "regex", *HEAVY})


@pytest.mark.parametrize(("name", "module"), [("lint", "api.linting"), ("schema", "language.schema.fields")])
def test_the_package_imports_what_a_function_needs(name: str, module: str) -> None:
    loaded = modules_after(f"from ckpt_surgery import {name}")
    assert f"ckpt_surgery.{module}" in loaded
    assert {f"ckpt_surgery.{module}" for module in PLANNING}.isdisjoint(loaded)


def test_catching_its_errors_needs_no_library() -> None:
    loaded = modules_after("from ckpt_surgery import SurgeryError")
    assert {name for name in loaded if name.startswith("ckpt_surgery.")} == {
        "ckpt_surgery.core",
        "ckpt_surgery.core.errors",
        "ckpt_surgery.core.problem_codes",
        "ckpt_surgery.core.text",
        "ckpt_surgery.core.version",
    }


@pytest.mark.parametrize("name", ["inspect", "diff"])
def test_looking_at_checkpoints_needs_no_recipes(name: str) -> None:
    loaded = modules_after(f"from ckpt_surgery import {name}")
    assert "ckpt_surgery.api.inspecting" in loaded
    assert loaded.isdisjoint(
        {"pydantic", "yaml", "ckpt_surgery.language.loading", "ckpt_surgery.api.applying"}
    )


SHARED = {"registry", "known", "opening", "chunk_reading", "shared", "shared.steps"}
SHARED |= {f"shared.{encoding}" for encoding in ("msgpack", "zarr", "zip")}
"""What any format may take to find out what a path holds."""
OFFERED = sorted(formats())


def loaded_formats(code: str) -> set[str]:
    """The modules of the formats that `code` imports, by their names in `ckpt_surgery.formats`."""
    script = f"import sys\n{code}\nprint(*[n for n in sys.modules if n.startswith('ckpt_surgery.formats.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.removeprefix("ckpt_surgery.formats.") for name in done.stdout.split()}


def beyond_detection(loaded: set[str]) -> set[str]:
    """The modules that are neither a format's own nor needed to find out which one a path has."""
    return {
        n
        for n in loaded
        if n not in {*SHARED, *OFFERED} and not n.endswith((".detect", "_layout", ".layout"))
    }


@pytest.fixture(scope="module")
def orbax_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("startup") / "orbax"
    ocp.StandardCheckpointer().save(path, {"a": np.ones(3)})
    return path


@pytest.mark.parametrize("name", OFFERED)
def test_a_format_loads_its_parts_when_it_is_opened(name: str, orbax_directory: Path) -> None:
    imported = f"from pathlib import Path\nfrom ckpt_surgery.formats.{name} import FORMAT"
    asked = f"{imported}\nassert FORMAT.recognizes(Path({str(orbax_directory)!r})) == {name == 'orbax'}"
    loaded = loaded_formats(asked)
    assert name in loaded
    assert beyond_detection(loaded) == set()


@pytest.mark.parametrize("name", OFFERED)
def test_a_format_asks_of_a_file_without_its_parts(name: str, tmp_path: Path) -> None:
    """An archive of NumPy's: formats that know a file by its first bytes read those."""
    np.savez(tmp_path / "x", a=np.ones(3))
    imported = f"from pathlib import Path\nfrom ckpt_surgery.formats.{name} import FORMAT"
    asked = f"{imported}\nassert FORMAT.recognizes(Path({str(tmp_path / 'x.npz')!r})) == {name == 'npz'}"
    assert beyond_detection(loaded_formats(asked)) == set()


def test_detection_loads_no_format_that_it_does_not_find(orbax_directory: Path) -> None:
    detected = f"detect_format({str(orbax_directory)!r}).name"
    found = f"from ckpt_surgery.formats.opening import detect_format\nassert {detected} == 'orbax'"
    loaded = loaded_formats(found)
    assert set(OFFERED) <= loaded
    assert beyond_detection(loaded) == set()


def test_both_programs_are_the_same() -> None:
    script = Path(sys.executable).parent / "ckpt-surgery"
    texts = [
        subprocess.run([*program, "--version"], capture_output=True, text=True, check=True).stdout
        for program in ([str(script)], [sys.executable, "-m", "ckpt_surgery"])
    ]
    assert texts == ["ckpt-surgery, version 0.1.0\n"] * 2
