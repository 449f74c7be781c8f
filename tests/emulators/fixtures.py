"""Fixtures for tests against emulators of object stores. A server starts where the first test needs it."""

from collections.abc import Iterator
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


@pytest.fixture
def s3_bucket(
    s3_emulator: s3.Emulator, monkeypatch: pytest.MonkeyPatch, own_temporary_directory: Path
) -> Iterator[Bucket]:
    for name, value in {**s3.ENVIRONMENT, "AWS_ENDPOINT_URL": s3_emulator.endpoint}.items():
        monkeypatch.setenv(name, value)
    store._opened.cache_clear()
    views.forget()
    yield Bucket(s3_emulator.bucket(), s3_emulator.disturbance)
    views.forget()
    s3_emulator.disturbance.clear()


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[gcs.Emulator]:
    with gcs.emulator() as running:
        yield running


@pytest.fixture
def gcs_bucket(
    gcs_emulator: gcs.Emulator, monkeypatch: pytest.MonkeyPatch, own_temporary_directory: Path
) -> Iterator[Bucket]:
    for name, value in gcs.environment(gcs_emulator.endpoint).items():
        monkeypatch.setenv(name, value)
    store._opened.cache_clear()
    views.forget()
    yield Bucket(gcs_emulator.bucket(), gcs_emulator.disturbance)
    views.forget()
    gcs_emulator.disturbance.clear()


@pytest.fixture(params=["s3", "gcs"])
def bucket_of(request: pytest.FixtureRequest) -> Bucket:
    """A bucket of each service."""
    found: Bucket = request.getfixturevalue(f"{request.param}_bucket")
    return found
