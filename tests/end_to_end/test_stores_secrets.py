"""Credentials of stores: sent to the store, and shown or written nowhere."""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.storage import remote, store
from ckpt_surgery.storage.store import store_of
from tests.emulators.fixtures import Bucket
from tests.support.checkpoints import save_pytree
from tests.support.command_line import run

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIA/odd+id=1",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t/+= %25'\"\\${HOME}[red]:end",
    "AWS_SESSION_TOKEN": "t0ken//+==%41&<x>'end",
}


@dataclass
class Recorder:
    """A WSGI application around another one that keeps what it is sent, and can quote it in its refusals."""

    application: Callable[..., Iterable[bytes]]
    headers: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refuse: Callable[[str, str], bool] = lambda method, path: False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        sent = [str(value) for name, value in environ.items() if name.startswith("HTTP_")]
        self.headers += sent
        self.bodies.append(body)
        self.paths.append(f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}")
        if self.refuse(environ["REQUEST_METHOD"], environ["PATH_INFO"]):
            told = "".join(f"<Quoted>{one}</Quoted>" for one in (*sent, *SECRETS.values()))
            answer = f"<Error><Code>SignatureDoesNotMatch</Code>{told}</Error>".encode()
            start_response("403 Forbidden", [("Content-Length", str(len(answer)))])
            return [answer]
        return self.application(environ, start_response)


@pytest.fixture
def recorder(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """What the emulator is sent, by a program that has the odd credentials."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "_RETRY", {**remote._RETRY, "max_retries": 1})
    store._opened.cache_clear()
    made = Recorder(s3_bucket.server._application)
    monkeypatch.setattr(s3_bucket.server, "_application", made)
    yield made
    store._opened.cache_clear()


PIECES = ("AKIA", "s3cr3t", "t0ken")
"""Parts of the credentials that no escaping changes."""


def check_kept(told: Iterable[str | bytes]) -> None:
    """No text has a credential."""
    for one in told:
        text = one.decode("latin-1") if isinstance(one, bytes) else one
        flat = "".join(text.split())  # lines are broken anywhere
        assert not [piece for piece in PIECES if piece in flat], text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_pytree(tmp_path / "in", {"a": np.random.default_rng(0).random(900)})
    (tmp_path / "recipe.yaml").write_text("version: 1\nrules: [{match: a, value: x * 2}]\n")
    return tmp_path / "in"


def told_by(source: Path, url: str) -> list[str]:
    """What commands print and write, whether they succeed or not."""
    place = source.parent
    recipe, plan = place / "recipe.yaml", place / "plan.json"
    told = []
    for arguments in (
        ("apply", recipe, source, f"{url}/out", "--json", place / "apply.json", "-vv"),
        ("apply", recipe, f"{url}/out", f"{url}/out", "-vv"),
        ("inspect", f"{url}/out", "--json", place / "inspect.json", "-vv"),
        ("plan", recipe, f"{url}/out", "--out", plan, "-vv"),
        ("apply", plan, f"{url}/two", "-vv"),
        ("verify", f"{url}/two", "--full", "-vv"),
        ("diff", f"{url}/out", f"{url}/two", "--values", "-vv"),
        ("inspect", "s3://no-such-bucket/x", "-vv"),
    ):
        done = run(*arguments)
        told.append(done.output)
    return told + [file.read_text() for file in place.glob("*.json")]


def test_nothing_that_succeeds_shows_them(source: Path, s3_bucket: Bucket, recorder: Recorder) -> None:
    told = told_by(source, s3_bucket.url)
    assert len(told) == 11
    assert any(SECRETS["AWS_SESSION_TOKEN"] == one for one in recorder.headers)  # they are in use
    locks = [body for body, path in zip(recorder.bodies, recorder.paths, strict=True) if "-lock" in path]
    assert any(b'"owner"' in body for body in locks)
    check_kept(told)
    check_kept(recorder.bodies)
    check_kept(recorder.paths)
    opened = store_of(f"{s3_bucket.url}/x")[0]
    check_kept(opened.read(name) for name in opened.walk())


@pytest.mark.parametrize("part", ["", "-lock", "/d/", "_METADATA", "commit_success.txt"])
def test_nothing_that_fails_shows_them(
    part: str, source: Path, s3_bucket: Bucket, recorder: Recorder
) -> None:
    """The store quotes them in its refusals, as some do."""
    recorder.refuse = lambda method, path: part in path and (method == "PUT" or not part)
    told = told_by(source, s3_bucket.url)
    assert "Error" in told[0]
    check_kept(told)
    check_kept(recorder.bodies)
    check_kept(recorder.paths)
