import os
from pathlib import Path

import pytest

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import UsageError


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("run/step", "run/step"),
        ("/a/b/", "/a/b/"),
        ("C:/x", "C:/x"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a%20b", "/a b"),
        ("s3://bucket/run", "s3://bucket/run"),
        ("s3://bucket/run/", "s3://bucket/run"),
        ("gs://bucket/a/b//", "gs://bucket/a/b"),
        ("S3://bucket/Run", "s3://bucket/Run"),
        ("s3://bucket/a%20b#1", "s3://bucket/a%20b#1"),  # names in buckets are taken literally
    ],
)
def test_what_is_given_comes_into_one_form(given: str, used: str) -> None:
    assert urls.checked(given) == used
    assert urls.checked(used) == used


@pytest.mark.each
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("s3://bucket", "does not name a path in a bucket"),
        ("gs://bucket/", "does not name a path in a bucket"),
        ("s3:///run", "does not name a path in a bucket"),
        ("http://host/run", "the scheme `http://` is not known"),
        ("hdfs://host/run", "s3://, gs://, file://, and paths"),
        ("s3://bucket/a//b", "does not name a path in a bucket"),
        ("s3://bucket/a/../b", "`..`"),
        ("file://host/run", "does not name a file on this machine"),
        ("file://run", "does not name a file on this machine"),
    ],
)
def test_what_names_nothing_is_refused_with_what_is_known(given: str, why: str) -> None:
    with pytest.raises(UsageError, match=r".") as raised:
        urls.checked(given)
    assert why in str(raised.value)
    assert raised.value.problems[0].hint


def test_a_url_is_absolute_and_has_a_root_and_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert urls.absolute("s3://bucket/x") == "s3://bucket/x"
    assert urls.absolute("x") == os.path.join(os.getcwd(), "x")
    assert urls.split("s3://bucket/a/b") == ("s3://bucket", "a/b")
    assert urls.split("gs://bucket") == ("gs://bucket", "")
