"""What people wait for at start-up: nothing heavy is imported until something needs it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.formats.known import formats
from tests.support.recipes import write_recipe

HEAVY = {"jax", "jaxlib", "orbax", "tensorstore", "torch", "flax", "tqdm", "IPython"}

RECIPE = """\
version: 1
rules:
  - {match: 'a/(?P<n>.*)', to: 'b/${n}', value: "cast(x * 2, 'bfloat16')"}
  - {add: c, value: "init('lecun_normal', (4, 4), 'float32', seed=0)"}
"""


PROBE = """
import os, sys
os._exit = sys.exit  # which is how the program ends
try:
    CODE
except SystemExit as done:
    assert not done.code, done.code
print("\\nmodules:", *sys.modules)
"""


def modules_after(code: str) -> set[str]:
    """Every module that has been imported once `code` has run in a fresh interpreter."""
    command = [sys.executable, "-W", "error", "-c", PROBE.replace("CODE", code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, told, names = done.stdout.rpartition("modules:")
    assert told
    return set(names.split())


COMMAND_LINE = "from ckpt_surgery.cli import main; main()"


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
    f"ckpt_surgery.{module}"
    for module in ("api.applying", "inputs.preparing", "runs", "engine", "formats", "planner")
} | {"ckpt_surgery.report.problems", "ckpt_surgery.report.values", *HEAVY}
"""What only those commands need that open a checkpoint."""
LOADING = {"numpy", "pydantic", "yaml", "regex"}
OF_COMMANDS = "ckpt_surgery.cli.commands"
COMPLETING = (
    "import os; os.environ.update(_CKPT_SURGERY_COMPLETE='bash_complete', COMP_CWORD='0', COMP_WORDS={})"
)


@pytest.mark.parametrize(
    ("code", "needed", "unneeded"),
    [
        # Editors run these all the time.
        (f"import sys; sys.argv += ['lint', 'recipe.yaml']; {COMMAND_LINE}", f"{OF_COMMANDS}.lint", PLANNING),
        (f"import sys; sys.argv += ['schema']; {COMMAND_LINE}", f"{OF_COMMANDS}.schema", PLANNING),
        (
            f"import sys; sys.argv += ['recipes']; {COMMAND_LINE}",
            f"{OF_COMMANDS}.recipes",
            PLANNING | LOADING | {"ckpt_surgery.language.loading"},
        ),
        (f"import sys; sys.argv += ['env']; {COMMAND_LINE}", f"{OF_COMMANDS}.env", HEAVY),
        ("from ckpt_surgery import lint", "ckpt_surgery.api.linting", PLANNING),
        ("from ckpt_surgery import schema", "ckpt_surgery.language.schema.fields", PLANNING),
        # People wait for completion with a finger on the key.
        *(
            (
                f"{COMPLETING.format(repr(line))}; {COMMAND_LINE}",
                "ckpt_surgery.cli.commands.completion",
                LOADING | HEAVY,
            )
            for line in ("ckpt-surgery ap", "ckpt-surgery apply --ov", "ckpt-surgery apply @hf")
        ),
        *(
            (
                f"from ckpt_surgery import {name}",
                "ckpt_surgery.api.inspecting",
                {"pydantic", "yaml", "ckpt_surgery.language.loading", "ckpt_surgery.api.applying"},
            )
            for name in ("inspect", "diff")
        ),
    ],
)
def test_only_what_is_needed_is_imported(
    code: str, needed: str, unneeded: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path, RECIPE)
    loaded = modules_after(code)
    assert needed in loaded
    assert loaded.isdisjoint(unneeded)


def test_catching_its_errors_needs_no_library() -> None:
    loaded = modules_after("from ckpt_surgery import SurgeryError")
    assert {name for name in loaded if name.startswith("ckpt_surgery.")} == {
        "ckpt_surgery.core",
        *(f"ckpt_surgery.core.{name}" for name in ("errors", "text", "version")),
    }


SHARED = {"registry", "known", "opening", "chunk_reading", "shared", "shared.steps"}
SHARED |= {f"shared.{part}" for part in ("limits", "msgpack", "npy", "zarr", "zip", "zip.members")}
"""What any format may take to find out what a path holds."""
OFFERED = sorted(formats())


def loaded_formats(code: str) -> set[str]:
    """The modules of the formats that `code` imports, by their names in `ckpt_surgery.formats`."""
    prefix = "ckpt_surgery.formats."
    return {name.removeprefix(prefix) for name in modules_after(code) if name.startswith(prefix)}


def beyond_detection(loaded: set[str]) -> set[str]:
    """The modules that are neither a format's own nor needed to find out which one a path has."""
    return {
        n
        for n in loaded
        if n not in {*SHARED, *OFFERED} and not n.endswith((".detect", "_layout", ".layout"))
    }


@pytest.fixture(scope="module")
def orbax_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import orbax.checkpoint as ocp

    path = tmp_path_factory.mktemp("startup") / "orbax"
    ocp.StandardCheckpointer().save(path, {"a": np.ones(3)})
    return path


@pytest.mark.slow("starts a process for each case")
@pytest.mark.parametrize("name", OFFERED)
def test_a_format_loads_its_parts_when_it_is_opened(name: str, orbax_directory: Path, tmp_path: Path) -> None:
    """To ask whether it is a directory's or an archive's takes none; some read a file's first bytes."""
    np.savez(tmp_path / "x", a=np.ones(3))
    imported = f"from pathlib import Path; from ckpt_surgery.formats.{name} import FORMAT"
    for path, own in ((orbax_directory, "orbax"), (tmp_path / "x.npz", "npz")):
        asked = f"{imported}; assert FORMAT.recognizes(Path({str(path)!r})) == {name == own}"
        loaded = loaded_formats(asked)
        assert name in loaded
        assert beyond_detection(loaded) == set()


@pytest.mark.slow("starts a process for each case")
def test_detection_loads_no_format_that_it_does_not_find(orbax_directory: Path) -> None:
    detected = f"detect_format({str(orbax_directory)!r}).name"
    found = f"from ckpt_surgery.formats.opening import detect_format; assert {detected} == 'orbax'"
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
