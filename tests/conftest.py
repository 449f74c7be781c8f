"""Settings that must be in place before jax is imported, and real checkpoints that tests share."""

import os
import signal
import sys
import tempfile
import textwrap
from collections import defaultdict

# Eight devices on the CPU, so that arrays can be sharded. Optimizing takes longer than what is saved by it:
# each program runs once or twice here, on small arrays.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # the page of a run is not for what tests do

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ckpt_surgery.storage import views
from tests.emulators.fixtures import bucket_of, gcs_bucket, gcs_emulator, s3_bucket, s3_emulator
from tests.support.effort import THOROUGH, examples, sample
from tests.support.key_value import key_value
from tests.support.models import save_model
from tests.support.recipes import write_recipe
from tests.support.site import site

# PyTorch for GPUs brings Triton, whose LLVM ends a process that has another one. Nothing here needs it.
sys.modules["triton"] = None  # type: ignore[assignment]

# Shells start programs in the background with SIGINT ignored, and nohup with SIGHUP; some tests send them.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# How long an example takes says more of the machine than of what is tested. `make test` tries the same few
# examples every time; `make test-all` sets EXAMPLES=random and tries more, and others.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not THOROUGH,
    max_examples=examples(100).max_examples,
)
settings.load_profile("unhurried")

__all__ = ["bucket_of", "gcs_bucket", "gcs_emulator", "s3_bucket", "s3_emulator", "site"]


def pytest_configure() -> None:
    """Forget the variables of options: they are the taste of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("CKPT_SURGERY_")]:
        del os.environ[name]


@pytest.fixture
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files that no other test has, for this process and those that it starts.

    What is written to a store is prepared in a directory there that is named for the URL alone.
    """
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return own


LONGEST_BYTES = 8
"""Bytes that are shown in the name of a test; of longer ones, only the length is."""


def pytest_make_parametrize_id(val: object) -> str | None:
    """Tests are not named by the content of files: an archive, say, holds the time when it was made.

    Each process of a run collects the tests for itself, and all must come to the same names.
    """
    if isinstance(val, bytes) and len(val) > LONGEST_BYTES:
        return f"{len(val)} bytes"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names and marks that say too little, and leave most cases of a test to `make test-all`."""
    for item in items:
        if " object at 0x" in item.nodeid:  # differs in each process
            raise pytest.UsageError(f"give this test a name that every process comes to: {item.nodeid}")
        if any(not mark.args for mark in item.iter_markers("slow")):
            raise pytest.UsageError(f"say why this test is slow: {item.nodeid}")
    leave_cases(items)


def leave_cases(items: list[pytest.Item]) -> None:
    """Mark as slow all but a few cases of each test, unless each case is a promise of its own.

    A mistake that breaks one case of many breaks the first or the last one almost always.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not any(map(item.get_closest_marker, ("each", "slow"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        cases.sort(key=lambda item: sorted(item.callspec.indices.items()))  # type: ignore[attr-defined]
        kept = sample(len(cases))
        for number, item in enumerate(cases):
            if number not in kept:
                item.add_marker(pytest.mark.slow("one case of many"))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`checkpoint(layout)`: a checkpoint that stock Orbax wrote in that layout, built once; read-only."""
    from tests.support import checkpoints  # imports jax and orbax, which most test files do without

    built: dict[str, Path] = {}

    def of(layout: str) -> Path:
        if layout not in built:
            built[layout] = tmp_path_factory.mktemp(layout) / "checkpoint"
            checkpoints.LAYOUTS[layout](built[layout])
        return built[layout]

    return of


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, of which nothing is remembered before or afterwards."""
    views.forget()
    with key_value(tmp_path / "bucket") as url:
        yield url
    views.forget()


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[[str], Path]:
    """`recipe(text)`: the file `recipe.yaml` with that text, dedented; each replaces the last."""
    return lambda text: write_recipe(tmp_path, textwrap.dedent(text))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A safetensors file with custom metadata, alone in its directory; see `tests.support.models`."""
    return save_model(tmp_path / "model")
