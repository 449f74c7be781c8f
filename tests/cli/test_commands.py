"""Streams, exit codes and messages. The library's answers are made by hand; real ones: test_program.py."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ckpt_surgery.api import applying, inspecting, linting
from ckpt_surgery.api.linting import CheckedRecipe
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.errors import (
    DataError,
    DestinationError,
    Interrupted,
    Place,
    PlanError,
    Problem,
    SourceError,
    StorageError,
    UsageError,
    VerificationError,
)
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.formats import opening
from ckpt_surgery.language import loading as recipes
from ckpt_surgery.language.schema import fields as models
from ckpt_surgery.report.differences import diff_trees
from ckpt_surgery.report.inspection import Inspection
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.verification import VerifiedRun, Verify
from ckpt_surgery.runs.run import Result
from tests.support.calls import record_calls
from tests.support.command_line import run
from tests.support.failing import raising
from tests.support.recipes import write_recipe

PLACES = {"inspect": inspecting, "diff": inspecting, "check_recipe": linting, "schema": models}
"""Where commands find what needs no plan."""


@pytest.fixture
def library(monkeypatch):
    def replace(name: str, answer) -> list[Any]:
        """Its calls. The answer is given or raised; a function makes it."""
        raised = isinstance(answer, BaseException)
        made = Mock(side_effect=answer) if raised or callable(answer) else Mock(return_value=answer)
        monkeypatch.setattr(PLACES.get(name, applying), name, made)
        return made.call_args_list

    return replace


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    return str(write_recipe(tmp_path, "version: 1\nparams: {n: 0, m: a}\nrules: []\n", "tower.yaml"))


def result_of(plan, **told):
    def apply(*paths, on_plan, progress, **options):
        on_plan(plan)
        if progress is not None:
            progress(Progress(1, 2))
        notices = ("the lock of a dead process was removed",)
        verified = VerifiedRun(Verify.FAST, 1 << 20, 2 << 30)
        return Result(plan, 0.25, "/out", notices, verified=verified, **told)

    return apply


# --- plan --------------------------------------------------------------------------------------------


GIVEN = {
    "step": 3,
    "item": "i",
    "src_format": "safetensors",
    "dst_step": 4,
    "dst_item": "j",
    "format": "orbax",
    "link_mode": "hardlink",
    "uint16": "bfloat16",
    "config": "c.json",
    "shard_size": 5_000_000_000,
    "memory": 1 << 20,
    "workers": 2,
}


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("plan RECIPE a b --target=t --allow-hooks", {"target": "t", "allow_hooks": True}),
        ("convert a b --resume", {"resume": True}),
    ],
)
def test_every_option_is_handed_on(library, recipe, plain, line, own):
    calls = library("plan", plain), library("apply", result_of(plain))
    options = [f"--{name.replace('_', '-')}={value}" for name, value in GIVEN.items()]
    done = run(*line.replace("RECIPE", recipe).split(), *options, "--unshard", "--overwrite")
    assert done.exit_code == 0, done.output
    (((_, given),),) = filter(None, calls)
    assert given.items() >= {**GIVEN, **own, "dst": "b", "unshard": True, "overwrite": True}.items()


def test_a_document_that_cannot_be_written(library, recipe, plain, tmp_path):
    """It is refused before the work, unless it turns out to be so only then."""
    calls = library("plan", plain)
    for option in ("--json", "--out"):
        for path, message in (("missing/x.json", "does not exist"), (".", "is a directory")):
            done = run("plan", recipe, "a", option, tmp_path / path)
            assert (done.exit_code, message in done.stderr) == (2, True)
    assert calls == []
    (tmp_path / "gone").mkdir()

    def planned(*paths, **options):
        (tmp_path / "gone").rmdir()
        return plain

    library("plan", planned)
    done = run("plan", recipe, "a", "--json", tmp_path / "gone" / "x.json")
    assert done.exit_code == 5
    assert f"Error: {tmp_path}/gone/x.json: No such file or directory" in done.stderr
    library("plan", plain)
    full = run("plan", recipe, "a", "--json", "/dev/full")
    assert full.exit_code == 5
    assert "Error: /dev/full: No space left on device\n  Free some space" in full.stderr


def test_detailed_exitcode_never_takes_an_error_for_changes(library, recipe):
    library("plan", PlanError("no"))
    for arguments in ("a", "a b c", "", "a --wrong", "a --step x"):
        assert run("plan", recipe, *arguments.split(), "--detailed-exitcode").exit_code == 1
    library("plan", Interrupted(signal.SIGTERM, "stopped"))
    assert run("plan", recipe, "a", "--detailed-exitcode").exit_code == 143


def test_full_plans_list_every_leaf_and_quiet_ones_print_warnings_only(library, recipe, tower):
    library("plan", tower)
    assert "block_17" in run("plan", recipe, "a", "--full").stdout
    for arguments in (["-q", "plan", recipe, "a"], ["plan", recipe, "a", "-q"]):
        done = run(*arguments)
        warning = "Warning: 1 of 2 elements of `a[b]` are used by no output\n"
        assert (done.stdout, done.stderr) == ("", warning)


def test_a_recipe_is_read_once(recipe, monkeypatch):
    """The command needs its sources, and the library its rules: both have the same reading of it."""
    reads = record_calls(monkeypatch, recipes, "read_text", lambda path: path)
    monkeypatch.setattr(opening, "open_source", raising(lambda: SourceError("no source is opened")))
    for line in ("plan RECIPE a", "apply RECIPE a b", "apply RECIPE a b --dry-run"):
        assert "no source is opened" in run(*line.replace("RECIPE", recipe).split()).stderr
        assert reads == [recipe]
        reads.clear()


# --- apply -------------------------------------------------------------------------------------------


def test_apply_tells_which_files_are_shared(library, recipe, tower):
    files = (AdoptedFile("d/0a", "/in/x", LinkMode.HARDLINK, 10, 5),)
    library("apply", result_of(tower, shared=files))
    done = run("apply", recipe, "a", "b", "--json", "-")
    assert json.loads(done.stdout)["shared"] == [
        {"file": "d/0a", "source": "/in/x", "size": 10, "mode": "hardlink"}
    ]
    assert "\n1 file is shared with" in done.stderr


# --- inspect, diff, lint, schema ---------------------------------------------------------------------


@pytest.fixture
def checkpoint(library, leaves) -> list[Any]:
    return library("inspect", Inspection("/ckpt", "orbax", 10, "default", {}, leaves))


def test_inspect(checkpoint, leaves):
    done = run("inspect", "/ckpt", "--step", "10", "--item", "default")
    assert done.stdout.startswith("/ckpt  (orbax, step 10, item default)\n27 leaves, 509 MiB, ")
    ((paths, options),) = checkpoint
    assert paths == ("/ckpt",)
    plain = {"format": None, "match": None, "under": None, "depth": None, "sort": None, "stats": False}
    assert options == {"step": 10, "item": "default", **plain, "progress": False}
    chosen = "--format orbax --match a.* --under params --depth 2 --sort size"
    assert run("inspect", "/ckpt", *chosen.split()).exit_code == 0
    told = {"format": "orbax", "match": "a.*", "under": "params", "depth": 2, "sort": "size"}
    assert checkpoint[-1][1].items() >= told.items()
    assert run("inspect", "/ckpt", "--keys").stdout.splitlines() == [leaf.key.text for leaf in leaves]
    assert "params/layer_{0..11}/ln" in run("inspect", "/ckpt", "--flat").stdout
    assert "params/layer_7/ln" in run("inspect", "/ckpt", "--flat", "--full").stdout
    assert "C zstd" in run("inspect", "/ckpt", "-v").stdout


def test_inspect_tells_by_its_exit_code_what_is_unusual(library, leaves):
    sound = Statistics(-1.0, 1.0, 0.0, 0.5, 0, 0)
    for stats, code in ((sound, 0), (replace(sound, nan=1), 3), (Unread("it is gone", damaged=True), 1)):
        library("inspect", Inspection("/ckpt", "npz", None, None, {}, leaves[-3:], {"step": stats}))
        assert run("inspect", "/ckpt", "--stats", "--exit-code").exit_code == code
        assert run("inspect", "/ckpt", "--stats").exit_code == (1 if code == 1 else 0)


NONSENSE = ("--sort weight", "--exit-code", "--stats --depth 1", "--keys --stats", "--keys --depth 1")


@pytest.mark.parametrize("options", NONSENSE)
def test_inspect_refuses_options_that_mean_nothing(checkpoint, options):
    assert run("inspect", "/ckpt", *options.split()).exit_code == 2
    assert checkpoint == []


def test_diff(library, leaves):
    calls = library("diff", diff_trees({leaf.key.text: leaf for leaf in leaves}, {}))
    options = "--values --rtol 1e-3 --atol 0.5 --match a.* --step 3 --memory 1GiB"
    assert run("diff", "a", "b", *options.split()).exit_code == 0
    given = {"values": True, "rtol": 1e-3, "atol": 0.5, "match": "a.*", "step": 3, "memory": 1 << 30}
    assert calls[0][1].items() >= given.items()
    assert run("diff", "a", "b", "--exit-code").exit_code == 3


def test_lint(library):
    place = Place("r.yaml", "rules[0].value", 4, 12, "    value: tr\x1bnpose(x)", 8)
    problem = Problem("unknown function", place, "Did you mean `transpose`?")
    at = Place("w.yaml", "rules[0].to", 3, 1, "to: a", 2)
    warning = Problem("slots keep their names", at, "Mirror them.")
    answers = {"r.yaml": {"problems": (problem,)}, "w.yaml": {"warnings": (warning,)}}
    library("check_recipe", lambda path: CheckedRecipe(path, **answers.get(path, {})))
    done = run("lint", "r.yaml", "s.yaml", "w.yaml")
    assert done.exit_code == 2
    assert done.stdout == (
        "r.yaml:4:12  rules[0].value\n"
        "        value: tr\\x1bnpose(x)\n"
        "               ^^^^^^^^^^^\n"
        "  unknown function\n"
        "  Did you mean `transpose`?\n"
        "\n"
        "s.yaml: no problems\n"
        "w.yaml:3:1  rules[0].to\n"
        "    to: a\n"
        "    ^^\n"
        "  Warning: slots keep their names\n"
        "  Mirror them.\n"
        "\n"
        "1 problem\n"
        "1 warning\n"
    )
    done = run("lint", "w.yaml", "-q")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "Warning: slots keep their names" in done.stderr


# --- errors ------------------------------------------------------------------------------------------


@pytest.mark.each
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SourceError("x"), 1),
        (DataError("x"), 1),
        (UsageError("x"), 2),
        (PlanError("x"), 2),
        (VerificationError("x"), 3),
        (DestinationError("x"), 4),
        (StorageError("x"), 5),
        (Interrupted(signal.SIGINT, "x"), 130),
        (Interrupted(signal.SIGTERM, "x"), 143),
        (KeyboardInterrupt(), 130),
        (ValueError("x"), 1),
        (OSError("x"), 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_exit_codes(library, error, code):
    library("inspect", error)
    done = run("inspect", "a")
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_all_problems_are_reported_and_stay_on_their_lines(library):
    library("inspect", PlanError(Problem("`\x1b[31ma\nb`", hint="Rename."), "second"))
    assert run("inspect", "a").stderr == ("Error: `\\x1b[31ma\\nb`\n  Rename.\n\nsecond\n")
    library("inspect", SourceError("[red]x[/red] [link=http://a]"))
    assert run("inspect", "a", FORCE_COLOR="1").stderr.endswith("[red]x[/red] [link=http://a]\n")


def test_a_bug_says_how_to_report_it_and_a_failure_what_to_check(library):
    library("inspect", ValueError("\x1bboom"))
    text = run("inspect", "a").stderr
    assert text.startswith("Error: internal error: ValueError: \\x1bboom\n  This is a bug in ckpt-surgery")
    assert "-vv" in text
    library("inspect", PermissionError(13, "Permission denied", "/ckpt\x1b"))
    assert run("inspect", "a").stderr == (
        "Error: /ckpt\\x1b: Permission denied\n"
        "  Check permissions, free space and limits (ulimit -a), then run again.\n"
    )


@pytest.mark.parametrize("error", [ValueError("boom"), SourceError("boom")])
def test_tracebacks_need_vv(library, error):
    library("inspect", error)
    for arguments in (["-vv", "inspect", "a"], ["inspect", "a", "-vv"], ["-v", "inspect", "a", "-v"]):
        assert "Traceback (most recent call last)" in run(*arguments).stderr
    assert "Traceback" not in run("inspect", "a", "-v").stderr


@pytest.mark.each
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--format", "torch", "`torch` is not one of: "),  # it can only be read
        ("--shard-size", "5 apples", "`5 apples` is not a size"),
        ("--set", "n", "`n` is not of the form NAME=VALUE"),
        ("--set", "=1", "`=1` is not of the form NAME=VALUE"),
        ("--step", "-1", "-1 is not in the range"),
        ("--workers", "0", "0 is not in the range"),
    ],
)
def test_values_of_options_are_checked(recipe, option, value, message):
    done = run("plan", recipe, "a", option, value)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("plan RECIPE a --step 1 --step 2", "--step"),
        ("apply RECIPE a b --item x --item=x", "--item"),
        ("convert a b --memory 1GiB --workers 1 --memory 2GiB", "--memory"),
        ("diff a b --json x.json --json", "--json"),
        ("inspect --format npz a --format orbax", "--format"),
    ],
)
def test_an_option_with_a_value_is_given_once(library, recipe, plain, line, option):
    calls = [library(name, plain) for name in ("plan", "apply", "diff", "inspect")]
    done = run(*line.replace("RECIPE", recipe).split())
    assert done.exit_code == 2
    assert f"Error: Option '{option}' is given more than once." in done.stderr
    assert calls == [[]] * 4
    again = ("--full", "--full", "-q", "-q", "--set", "n=1", "--set", "m=b")
    assert run("plan", recipe, "a", *again).exit_code == 0


# --- colour and terminals ----------------------------------------------------------------------------


def test_colour_is_for_terminals_and_can_be_refused(library, recipe, tower):
    library("plan", tower)
    colour = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    for more, env in (((), {}), (("--no-color",), colour), ((), {**colour, "NO_COLOR": "1"})):
        text = run("plan", recipe, "a", *more, **env).stdout
        assert "DROPPED" in text
        assert "\x1b[" not in text
    assert "\x1b[1;31mDROPPED" in run("plan", recipe, "a", **colour).stdout


SLOW_READER = """
import sys
from ckpt_surgery.language.schema import fields as recipe
from ckpt_surgery.cli import main
recipe.schema = lambda: {str(i): "x" * 100 for i in range(10_000)}
sys.argv = ["ckpt-surgery", "schema"]
main()
"""


def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-c", SLOW_READER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.read(1)
        program.stdout.close()
        assert program.stderr.read() == b""
