"""Fixtures for tests against emulators of object stores. A server starts where the first test needs it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckpt_surgery.storage import store, views
from tests.emulators import gcs, s3
from tests.emulators.disturbing import Disturbance


@dataclass(frozen=True)
class Bucket:
    """A new bucket in an emulator."""

    url: str
    server: Disturbance


@pytest.fixture(scope="session")
def s3_emulator() -> Iterator[s3.Emulator]:
    with s3.emulator() as running:
        yield running


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[gcs.Emulator]:
    with gcs.emulator() as running:
        yield running


@contextmanager
def emptied(emulator: s3.Emulator | gcs.Emulator, variables: Mapping[str, str]) -> Iterator[Bucket]:
    """A new bucket, for programs with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        store._opened.cache_clear()
        views.forget()
        yield Bucket(emulator.bucket(), emulator.disturbance)
    views.forget()
    emulator.disturbance.clear()


@pytest.fixture
def s3_bucket(s3_emulator: s3.Emulator, own_temporary_directory: Path) -> Iterator[Bucket]:
    variables = {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": s3_emulator.endpoint}
    with emptied(s3_emulator, variables) as bucket:
        yield bucket


@pytest.fixture
def gcs_bucket(gcs_emulator: gcs.Emulator, own_temporary_directory: Path) -> Iterator[Bucket]:
    with emptied(gcs_emulator, gcs.environment(gcs_emulator.endpoint)) as bucket:
        yield bucket


@pytest.fixture(params=["s3", "gcs"])
def bucket_of(request: pytest.FixtureRequest) -> Bucket:
    """A bucket of each service."""
    found: Bucket = request.getfixturevalue(f"{request.param}_bucket")
    return found
