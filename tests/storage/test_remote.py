"""Buckets of both services, emulated: what is written and read, on which conditions, and what is told."""

import os
import sys
import threading
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import MissingLibraryError, SourceError, StorageError
from ckpt_surgery.storage import remote, store
from ckpt_surgery.storage.store import ByteRange, ConditionFailed, Only, Store, store_of
from tests.emulators import gcs
from tests.emulators.fixtures import Bucket

NAMES = ("a b", "p%20q", "ü/x", "a+b", "h#i", "q?x=1", "t~", "dots..", "star*", "c:d", "s[1]", "d/e/f")


def opened(bucket: Bucket) -> Store:
    return store_of(f"{bucket.url}/x")[0]


def asked(bucket: Bucket) -> list[str]:
    return [one.method for one in bucket.server.asked]


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "ckpt_surgery.storage.remote")
    with pytest.raises(MissingLibraryError, match=r"s3://another: buckets need .*\n.*`pip install obstore`"):
        store_of("s3://another/x")


def test_names_are_taken_literally(bucket_of: Bucket) -> None:
    """Also of those that are deleted, among which some are not there."""
    one, stats = opened(bucket_of), {}
    for name in NAMES:
        made = one.put(f"run/{name}", b"data")
        assert one.read(f"run/{name}") == b"data"
        found = stats[f"run/{name}"] = one.stat(f"run/{name}")
        assert (found.size, found.version) == (4, made.version)
    assert one.walk("run/") == stats
    one.delete([name for there in stats for name in (f"{there}-none", there)])
    assert one.walk("run/") == {}


def test_ranges_are_exact_and_pinned(bucket_of: Bucket) -> None:
    one = opened(bucket_of)
    first = one.put("x", bytes(range(100)))
    assert one.read("x", 10, 20) == bytes(range(10, 20))
    assert one.read("x", 90) == bytes(range(90, 100))
    assert one.read("x", 5, 5) == b""
    assert one.read("x", version=first.version) == bytes(range(100))
    with pytest.raises(SourceError, match="ends at byte 100"):
        one.read("x", 90, 110)
    second = one.put("x", b"other")
    assert second.version != first.version
    with pytest.raises(SourceError, match="has changed since it was listed"):
        one.read("x", 0, 2, first.version)
    with pytest.raises(SourceError, match="is missing"):
        one.read("none")
    assert one.stat("none") is None


def test_writes_have_conditions(bucket_of: Bucket) -> None:
    one = opened(bucket_of)
    first = one.put("lock", b"1", Only.ABSENT)
    with pytest.raises(ConditionFailed, match="another process"):
        one.put("lock", b"2", Only.ABSENT)
    second = one.put("lock", b"3", first.version)
    with pytest.raises(ConditionFailed):
        one.put("lock", b"4", first.version)
    assert one.read("lock", version=second.version) == b"3"
    assert ConditionFailed("").exit_code == 4


def test_a_lost_answer_is_no_failure(bucket_of: Bucket) -> None:
    """The request is repeated, and finds what it wrote itself."""
    one, server = opened(bucket_of), bucket_of.server
    server.clear()
    server.lose = lambda request, number: request.method == "PUT" and number == 1
    made = one.put("lock", b"mine", Only.ABSENT)
    assert one.read("lock") == b"mine"
    assert made.size == 4
    assert asked(bucket_of).count("PUT") == 2


def test_passing_refusals_are_survived(bucket_of: Bucket) -> None:
    one, server = opened(bucket_of), bucket_of.server
    one.put("x", b"data")
    for status in (503, 429):
        server.clear()
        server.refuse = lambda request, number, status=status: status if number < 3 else None  # type: ignore[misc]
        assert one.read("x") == b"data"
        assert len(server.asked) == 3


def test_what_stays_refused_is_told_without_secrets(
    bucket_of: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_RETRY", {**remote._RETRY, "max_retries": 1})
    store._opened.cache_clear()
    one = opened(bucket_of)
    messages = []
    for status in (403, 500):
        bucket_of.server.refuse = lambda request, number, status=status: status  # type: ignore[misc]
        for use in (
            lambda: one.walk("x/"),
            lambda: one.read("x"),
            lambda: one.stat("x"),
            lambda: one.put("x", b""),
            lambda: one.delete(["x"]),
        ):
            with pytest.raises(StorageError, match=f"{one.url}/x") as raised:
                use()
            messages.append(str(raised.value))
    for message in messages:
        assert len(message.splitlines()) == 2
        for secret in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
            assert os.environ.get(secret, "testing-secret") not in message
        assert "Signature" not in message


def test_a_bucket_that_is_not_there_is_told(bucket_of: Bucket) -> None:
    none = store_of(f"{bucket_of.url.partition('bucket')[0]}no-such-bucket/x")[0]
    with pytest.raises(StorageError, match="NoSuchBucket"):
        none.walk("x/")
    with pytest.raises(StorageError, match="the bucket or object does not exist"):
        none.put("x", b"")


def test_a_store_that_cannot_be_reached_is_told(bucket_of: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr(remote, "_RETRY", {**remote._RETRY, "max_retries": 1})
    store._opened.cache_clear()
    with pytest.raises(StorageError, match=r"/x/ cannot be listed: the store cannot be reached"):
        opened(bucket_of).walk("x/")


def test_many_ranges_are_read_at_the_same_time(bucket_of: Bucket) -> None:
    one, server = opened(bucket_of), bucket_of.server
    for n in range(40):
        one.put(f"d/{n}", bytes([n]) * 10)
    server.clear()
    eight = threading.Barrier(8)
    server.refuse = lambda request, number: None if eight.wait(60) >= 0 else 503
    found = one.read_many([ByteRange(f"d/{n}", 2, 5) for n in range(40)])
    assert found == [bytes([n]) * 3 for n in range(40)]
    assert len(server.asked) == 40
    assert 8 <= server.most_active <= 32


def test_near_ranges_are_one_request(bucket_of: Bucket) -> None:
    one, server = opened(bucket_of), bucket_of.server
    one.put("x", bytes(range(200)))
    server.clear()
    assert one.read_many([ByteRange("x", 100, 110), ByteRange("x", 0, 4), ByteRange("x", 105, 120)]) == [
        bytes(range(100, 110)),
        bytes(range(4)),
        bytes(range(105, 120)),
    ]
    assert len(server.asked) == 1


def test_listings_have_pages(bucket_of: Bucket) -> None:
    one, server = opened(bucket_of), bucket_of.server
    for n in range(5):
        one.put(f"run/{n}", b"")
    one.put("run/d/x", b"")
    server.clear()
    objects, prefixes = one.names_in("run/")
    assert sorted(objects) == [f"run/{n}" for n in range(5)]
    assert prefixes == ["run/d/"]
    assert len(one.walk("run/")) == 6
    assert len(server.asked) == 2


def test_objects_are_copied_by_the_server(bucket_of: Bucket) -> None:
    one, server = opened(bucket_of), bucket_of.server
    one.put("x", b"data")
    server.clear()
    assert one.copies(f"{one.url}/x", 1 << 30)
    one.copy(f"{one.url}/x", "y")
    assert "GET" not in asked(bucket_of)
    assert one.read("y") == b"data"
    assert not one.copies("s3://other/x", 4)
    assert one.copies(f"{one.url}/x", 6 << 30) is one.url.startswith("gs")  # S3 copies 5 GiB in a request
    with pytest.raises(SourceError, match="is missing"):
        one.copy(f"{one.url}/none", "y")


def test_large_objects_go_in_parts(
    bucket_of: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MULTIPART_BYTES", 6 << 20)
    monkeypatch.setattr(remote, "PART_BYTES", 5 << 20)
    one, data = opened(bucket_of), os.urandom(11 << 20)
    file = tmp_path / "x"
    file.write_bytes(data)
    made = one.upload("x", file, Only.ABSENT)
    assert sum("partNumber" in request.query for request in bucket_of.server.asked) == 3
    assert one.read("x", version=made.version) == data
    with pytest.raises(ConditionFailed):
        one.upload("x", file, Only.ABSENT)
    assert one.put("y", data).size == len(data)


def test_the_time_is_the_stores_own(bucket_of: Bucket) -> None:
    one = opened(bucket_of)
    one.put("x", b"")
    found = one.stat("x")
    assert 0 <= one.now() - found.modified < 3600 * 10**9
    assert list(one.walk()) == ["x"]


def test_listings_of_more_than_a_page(gcs_bucket: Bucket, gcs_emulator: gcs.Emulator) -> None:
    one, name = opened(gcs_bucket), gcs_bucket.url.removeprefix("gs://")
    one.put("run/a", b"x")
    found = gcs_emulator.application.buckets[name]
    found |= {f"run/d{n % 7}/{n}": found["run/a"] for n in range(2500)}
    gcs_bucket.server.clear()
    assert len(one.walk("run/")) == 2501
    assert len(gcs_bucket.server.asked) == 3
    objects, prefixes = one.names_in("run/")
    assert list(objects) == ["run/a"]
    assert prefixes == [f"run/d{n}/" for n in range(7)]
