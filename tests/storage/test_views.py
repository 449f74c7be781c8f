"""Listings of stores: what is asked for once, and what is seen as files and directories."""

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage import listing, reading, views
from ckpt_surgery.storage.store import store_of
from tests.support.key_value import requests_of

NAMES = ("run/a", "run/d/0", "run/d/1", "run/e/f/g", "runner", "other/x")


@pytest.fixture
def bucket(bucket: str) -> str:
    """A store with these objects."""
    for number, name in enumerate(NAMES):
        store_of(bucket)[0].put(name, bytes(range(number + 1)))
    requests_of(bucket).clear()
    return bucket


def test_prefixes_are_directories(bucket: str) -> None:
    run = f"{bucket}/run"
    assert listing.is_directory(run)
    assert listing.is_directory(f"{run}/e/f")
    assert not listing.is_directory(f"{run}/a")
    assert not listing.is_directory(f"{bucket}/ru")
    assert listing.is_file(f"{run}/a")
    assert not listing.is_file(f"{run}/d")
    assert listing.exists(f"{run}/e")
    assert not listing.exists(f"{run}/none")
    assert listing.names_in(run) == ["a", "d", "e"]
    assert listing.directory_names(run) == listing.DirectoryNames(["a"], ["d", "e"])
    assert sorted(listing.names_below(run)) == ["a", "d/0", "d/1", "e/f/g"]
    assert {name: stat.size for name, stat in listing.walk(f"{run}/d", run).items()} == {"0": 2, "1": 3}
    assert requests_of(bucket).count("walk run/") == 1


def test_what_is_below_a_listing_is_asked_for_once(bucket: str) -> None:
    run = f"{bucket}/run"
    for _ in range(3):
        assert listing.is_directory(run)
        assert listing.names_in(f"{run}/e") == ["f"]
        assert reading.stat_file(f"{run}/d/1").size == 3
        assert not listing.exists(f"{run}/d/2")
    assert requests_of(bucket) == ["walk run/"]
    views.forget()
    assert listing.is_directory(run)
    assert requests_of(bucket) == ["walk run/", "walk run/"]


def test_a_directory_above_costs_one_level(bucket: str) -> None:
    """The checkpoint's own objects are known; those beside it may be many, and are not listed."""
    assert listing.is_directory(f"{bucket}/run/e")
    assert listing.names_in(f"{bucket}/run") == ["a", "d", "e"]
    assert listing.is_directory(f"{bucket}/run/d")
    assert reading.stat_file(f"{bucket}/run/a").size == 1
    assert requests_of(bucket) == ["walk run/e/", "names_in run/"]


def test_an_object_is_read_in_the_version_that_was_seen(bucket: str) -> None:
    file = f"{bucket}/run/d/1"
    store, name = store_of(file)
    with reading.opened(file) as opened:
        assert opened.read(1, 2) == b"\1\2"
        store.put(name, b"abc")
        views.forget()
        with pytest.raises(SourceError, match="changed"):
            opened.read(1, 2)
    views.forget()
    assert reading.read_file(file) == b"abc"


def test_fingerprints_know_versions_and_not_places(bucket: str) -> None:
    def fingerprint(url: str) -> str:
        views.forget()
        files = {f"{url}/{name}": stat for name, stat in listing.walk(url, url).items()}
        return listing.digest(listing.relative(files))

    run, copy = f"{bucket}/run", f"{bucket}/far/away/run"
    before = fingerprint(run)
    assert before == fingerprint(run)
    store, name = store_of(run)
    stats = listing.walk(run, run)
    assert set(listing.relative({f"{copy}/{name}": stat for name, stat in stats.items()})) == set(stats)
    store.put(f"{name}/a", b"x")
    assert fingerprint(run) != before
