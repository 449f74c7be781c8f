"""What all tests of faults share: a process that carries out runs, and the count of what was tried."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt_surgery.storage import views
from tests.faults.runs import Runner
from tests.faults.scenarios import Bench
from tests.faults.stores import KeyValues
from tests.faults.tally import Tally
from tests.support.key_value import key_value


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made.close()


@pytest.fixture(scope="session")
def tally() -> Iterator[Tally]:
    made = Tally()
    yield made
    made.save()


@pytest.fixture
def bench(tmp_path: Path, runner: Runner) -> Callable[[str], Bench]:
    """`bench(name)`: a directory for the scenario of that name."""
    return lambda name: Bench(name, tmp_path / "bench", runner, tmp_path / "cache")


@pytest.fixture
def key_values(tmp_path: Path) -> Iterator[KeyValues]:
    """An empty key-value store."""
    views.forget()
    with key_value(tmp_path / "bucket") as url:
        yield KeyValues(url, tmp_path / "bucket")
    views.forget()
