"""Runs to a store that end at any of their requests, and what the next run makes of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import heartbeat
from ckpt_surgery.engine.staging.objects import roll_forward
from ckpt_surgery.storage.store import registered
from tests.support.ended_runs import Killed
from tests.support.key_value import KeyValueStore, key_value
from tests.support.object_runs import MARKER, Dying, at, run, state, whole


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with key_value(tmp_path / "bucket"):
        yield tmp_path / "bucket"


URL = "kv://bucket/runs/out"


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of this process that was killed counts as ended."""
    monkeypatch.setattr(heartbeat, "has_ended", lambda owner: True)


def killed_at(directory: Path, number: int, after: bool, overwrite: bool, end: Callable[[], None]) -> bool:
    """Let a run end at one of its requests; False where it had fewer."""
    inner = KeyValueStore("kv://bucket", directory)
    dying = Dying(inner, number, after, end)
    with registered("kv", lambda root: dying):
        try:
            run(URL, "new", overwrite=overwrite)
        except Killed:
            return True
    return False


def die() -> None:
    raise Killed


def empty(directory: Path) -> None:
    for file in directory.glob("*.o"):
        file.unlink()


def is_clean(value: str) -> bool:
    """Whether one whole checkpoint is there, and nothing of any run."""
    return at(URL).keys() == {*whole(value), MARKER} and state(URL) == value


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("after", [False, True])
def test_a_fresh_destination_is_never_mixed(directory: Path, after: bool) -> None:
    number, seen = 0, set()
    while killed_at(directory, number := number + 1, after, False, die):
        seen.add(state(URL))
        try:
            run(URL, "next")
            assert is_clean("next"), number
        except DestinationError:  # it had begun to publish, and was completed
            assert is_clean("new"), number
            seen.add("completed")
        empty(directory)
    assert seen == {"uncommitted", "new", "completed"}
    assert number > 20


@pytest.mark.usefixtures("dead")
@pytest.mark.slow("kills processes")
def test_completing_can_itself_be_killed_anywhere(directory: Path) -> None:
    def begun() -> None:
        """A run that has deleted the older marker, and died."""
        empty(directory)
        run(URL, "old")
        number = 0
        while state(URL) != "uncommitted":
            empty(directory)
            run(URL, "old")
            killed_at(directory, number := number + 1, True, True, die)

    ends = 0
    while True:
        begun()
        dying = Dying(KeyValueStore("kv://bucket", directory), ends + 1, True, die)
        with registered("kv", lambda root, dying=dying: dying):
            try:
                roll_forward(URL)
            except Killed:
                ends += 1
            else:
                break
        state(URL)
        run(URL, "next", overwrite=True)
        assert is_clean("next"), ends
    assert ends > 10
