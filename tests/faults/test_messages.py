"""What a person sees of each kind of fault: one short paragraph that says what to do next."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.calls import Fault
from tests.faults.runs import Run, Runner
from tests.faults.scenarios import Bench, check_message
from tests.support.directories import files_of
from tests.support.generations import staged


def told(run: Run) -> str:
    """The message, with `~` for the directory of the test and for what is random in a name."""
    check_message(run)
    text = run.err[run.err.index("Error: ") :].strip()
    text = re.sub(r"\S*/bench\b", "~", text)
    return re.sub(r"(ckpt-surgery)-[0-9a-f]{16}", r"\1-~", text)


def full(paragraph: str, next_step: str) -> str:
    return f"Error: {paragraph}\n  {next_step}"


FAULTS = {
    "a full disk": (
        Fault("write", 2, errno.ENOSPC, lasting=True),
        r"~/\S*out\.npz\S*: No space left on device",
        "Free some space, or choose a destination on another file system.",
    ),
    "a device that fails": (
        Fault("sync", 1, errno.EIO),
        r"~/\S*out\.npz\S*: Input/output error",
        "The device reports an error: look into the system's log before trusting it again.",
    ),
    "a device that fails to read": (
        Fault("read", 4, errno.EIO, lasting=True),
        r"\S*origin\.npz.*: Input/output error",
        r".+",
    ),
    "a file system that is read-only": (
        Fault("mkdir", 1, errno.EROFS),
        r"~/\.out\.npz\.ckpt-surgery-\S+: Read-only file system",
        "The file system is mounted read-only: choose another destination.",
    ),
    "no permission": (
        Fault("rename", 1, errno.EACCES),
        r"~/\S+: Permission denied",
        "Check the permissions of the destination's directory.",
    ),
}


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("what", FAULTS)
def test_a_system_call_that_fails(what: str, bench: Callable[[str], Bench]) -> None:
    fault, paragraph, next_step = FAULTS[what]
    at = bench("npz-npz")
    run = at.run(fault=fault)
    assert at.check(run, overwritten=False) == "absent"
    assert run.code in (1, 5)
    assert re.fullmatch(full(paragraph, next_step), told(run)), told(run)
    at.settle(run)


@pytest.mark.slow("disturbs programs")
def test_a_file_that_may_not_grow(bench: Callable[[str], Bench]) -> None:
    at = bench("npz-npz")
    run = at.run(limits={"RLIMIT_FSIZE": 2000})
    assert at.check(run, overwritten=False, codes=[5]) == "absent"
    assert "Raise the limit on file sizes (ulimit -f), or choose another file system." in told(run)


@pytest.mark.slow("disturbs programs")
def test_a_run_that_was_killed(bench: Callable[[str], Bench]) -> None:
    """The next one says what it found and removes it."""
    at = bench("npz-npz")
    killed = at.run(fault=Fault("sync", 1))
    assert killed.code == -9
    assert at.holds(killed, overwritten=False) == "absent"
    assert at.leftovers()
    at.check_names(killed)
    again = at.check_next_run(killed)
    assert "which has ended without finishing" in again.out
    assert "which an unfinished run left behind" in again.out


def test_a_destination_that_exists(bench: Callable[[str], Bench]) -> None:
    at = bench("npz-npz")
    at.prepare(overwrite=True)
    run = at.run()
    assert at.check(run, overwritten=True, codes=[4]) == "old"
    assert told(run) == full(
        "out.npz: exists already", "Choose another destination, or replace it: `--overwrite`."
    )


@pytest.mark.slow("disturbs programs")
@pytest.mark.parametrize("damage", ["cut", "deleted"])
def test_a_damaged_source(damage: str, bench: Callable[[str], Bench], runner: Runner) -> None:
    at = bench("orbax-cast")
    file = max(files_of(at.directory / "source"), key=lambda path: path.stat().st_size)
    if damage == "cut":
        os.truncate(file, file.stat().st_size // 2)
    else:
        file.unlink()
    run = at.run()
    assert run.code == 1
    assert "The checkpoint is damaged or incomplete; take another copy." in told(run)
    assert at.leftovers() == []
    assert not at.out.exists()


def test_a_hostile_file(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 7 + b"\x0f{}")
    run = runner.run("convert", "x.safetensors", "out", directory=tmp_path)
    assert run.code == 1
    assert told(run) == full(
        "x.safetensors: it says that its header has 1152921504606846975 bytes; safetensors allows 100000000",
        "It is damaged, or not a safetensors file.",
    )


@pytest.mark.slow("disturbs programs")
def test_a_flipped_bit(bench: Callable[[str], Bench]) -> None:
    at = bench("orbax-safetensors")
    assert at.run().code == 0
    data = bytearray(at.out.read_bytes())
    data[-1] ^= 1
    at.out.write_bytes(data)
    run = at.verify()
    assert run.code == 3
    assert re.search(
        r"^damaged  `params/\w+`, chunk \(0.*\): its checksum is \w+, not \w+", run.out, re.MULTILINE
    )


@pytest.mark.slow("disturbs programs")
def test_a_shared_file_that_was_rewritten(bench: Callable[[str], Bench]) -> None:
    at = bench("orbax-links")
    made = at.run("--link-mode", "hardlink")
    assert made.code == 0
    shared = [file for file in files_of(at.out) if file.stat().st_nlink > 1]
    assert shared
    shared[0].write_bytes(bytes(shared[0].stat().st_size))
    run = at.verify("--fast")
    assert run.code == 3
    assert re.search(r"^damaged  .*" + shared[0].name, run.out, re.MULTILINE), run


def test_a_run_beside_another(bench: Callable[[str], Bench]) -> None:
    """The lock is that of a process that lives: this one, which holds it by its own means."""
    at = bench("npz-npz")
    with staged(at.out, one_file=True):
        run = at.run()
    assert run.code == 4
    assert re.search(r"process \d+ .*is writing this destination", told(run)), run


@pytest.mark.slow("disturbs programs")
def test_few_handles(bench: Callable[[str], Bench]) -> None:
    at = bench("orbax-cast")
    for limit in range(5, 40):
        at.prepare(overwrite=True)
        run = at.run("--overwrite", limits={"RLIMIT_NOFILE": limit})
        if run.code == 0:
            break
        assert run.code == 5
        assert "Too many open files" in told(run)
        assert re.search("ulimit -[na]", told(run))
    assert limit > 5


@pytest.mark.slow("disturbs programs")
def test_a_hostile_recipe(bench: Callable[[str], Bench]) -> None:
    at = bench("npz-npz")
    (at.directory / "recipe.yaml").write_text("version: 1\nrules: [{match: w, value: 'tile(x, 10**12)'}]\n")
    run = at.run()
    assert run.code == 2
    check_message(run, hinted=False)
    assert not at.out.exists()


def test_a_message_that_is_none_is_noticed() -> None:
    """The check that every other test relies on."""
    for text in (
        "Error: x\nTraceback (most recent call last):\n  File",
        "Error: internal error: KeyError: 3",
        f"Error: {'x' * 2000}\n  Take care.",
        "Error: it went wrong",
        "nothing",
    ):
        with pytest.raises((AssertionError, AttributeError)):
            check_message(Run((), 1, "", text, True, 0.0, 0, {}, ""))
