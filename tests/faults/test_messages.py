"""What a person sees of each kind of fault: one short paragraph that says what to do next."""

import errno
import re
from collections.abc import Callable

import pytest

from tests.faults.calls import Fault
from tests.faults.runs import Run
from tests.faults.scenarios import Bench, check_message, flowing


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
def test_a_run_that_was_killed(bench: Callable[[str], Bench]) -> None:
    """The next one says what it found and removes it."""
    at = bench("npz-npz")
    killed = at.run(fault=Fault("sync", 1))
    assert killed.code == -9
    assert at.holds(killed, overwritten=False) == "absent"
    assert at.leftovers()
    at.check_names(killed)
    said = flowing(at.check_next_run(killed).out)
    assert "which has ended without finishing" in said
    assert "which an unfinished run left behind" in said


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
