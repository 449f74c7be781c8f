"""Buckets of S3 and of Google Cloud Storage, through obstore.

Credentials and endpoints come from the services' standard variables; obstore looks for them. A version is the
object's entity tag. Requests that fail for a reason that passes are repeated by obstore, with growing pauses.
"""

import contextlib
import io
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import obstore.exceptions as kinds
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import GCSStore, S3Store

from ckpt_surgery.core import urls
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import changed, missing
from ckpt_surgery.storage.store import Buffer, ByteRange, Condition, ConditionFailed, Only, Stat

_CREDENTIALS = (
    "Check the credentials: of S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of Google Cloud "
    "GOOGLE_APPLICATION_CREDENTIALS."
)
_REACH = "Check the network, the bucket's name, and AWS_ENDPOINT_URL or STORAGE_EMULATOR_HOST, if it is set."
_STATUS = re.compile(r"status:?\s*([45]\d\d)|Server returned non-2xx status code: ([45]\d\d)")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")


@contextlib.contextmanager
def remote_errors(url: str, action: str = "read") -> Iterator[None]:
    """Turn the errors of obstore into StorageError; those of absence and conditions are caught before."""
    try:
        yield
        return
    except (kinds.PermissionDeniedError, kinds.UnauthenticatedError) as error:
        why, hint = f"the store refuses it{_code(str(error))}", _CREDENTIALS
    except FileNotFoundError as error:
        why, hint = f"the bucket or object does not exist{_code(str(error))}", _REACH
    except ValueError as error:
        if "parse path" not in str(error):
            raise
        why, hint = "its name has a part or a character that objects cannot have", "Choose another name."
    except kinds.BaseError as error:
        why, hint = _reason(str(error))
    # From nothing, as the library's own error may quote credentials.
    raise StorageError(f"{shown(url)} cannot be {action}: {why}", hint=hint) from None


def _reason(text: str) -> tuple[str, str]:
    """Reason why a request failed, and what to do. The library's text is long, and may quote the request."""
    status = _STATUS.search(text)
    number = next(filter(None, status.groups()), "") if status else ""
    if number == "501":
        return (
            "the store does not know conditional writes, without which two runs could mix",
            "Use a store that has them, or write to a local directory and copy the result.",
        )
    if number:
        hint = _CREDENTIALS if number in ("401", "403") else "Try again; the store's own pages tell more."
        return f"the store answers HTTP {number}{_code(text)}", hint
    unreached = any(part in text for part in ("dns error", "Connect", "error sending request", "timed out"))
    return "the store cannot be reached" if unreached else "the store could not answer", _REACH


def _code(text: str) -> str:
    match = _CODE.search(text)
    return "" if match is None else f", {match[1]}"


def already_there(url: str) -> ConditionFailed:
    """The error to raise where the condition of a write does not hold."""
    return ConditionFailed(f"{shown(url)} was written by another process meanwhile")


PART_BYTES, MULTIPART_BYTES = 16 << 20, 64 << 20
"""Size of a part of an upload, and the size from which on objects are uploaded in parts."""
IN_FLIGHT = 32
"""Largest number of reads at a time."""
BATCH, COPY_BYTES = 1000, 5 << 30
"""Largest number of objects that S3 deletes, and largest object that it copies, in one request."""
GAP_BYTES, JOINED_BYTES = 512 << 10, 8 << 20
"""Ranges with a smaller gap than the first between them are read together, up to the second in all: a request
costs more than the bytes of a gap."""
_RETRY = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
_CLIENT = {"connect_timeout": "10s", "timeout": "300s"}


def open_store(root: str) -> "ObjectStore":
    """The store of a bucket: `s3://bucket` or `gs://bucket`. Asks nothing.

    Raises UsageError where a variable has a value that means nothing.
    """
    scheme, bucket = root.split("://", 1)
    return ObjectStore(root, (_s3 if scheme == "s3" else _gcs)(bucket))


def _s3(bucket: str) -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    given = {"endpoint": endpoint} if endpoint else {}
    options: Any = {**_CLIENT, "allow_http": endpoint.startswith("http://")}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return S3Store(bucket, region=region, client_options=options, retry_config=_RETRY, **given)  # type: ignore[arg-type]


def _gcs(bucket: str) -> Any:
    host = os.environ.get("STORAGE_EMULATOR_HOST")
    options: Any = dict(_CLIENT)
    if not host:
        return GCSStore(bucket, client_options=options, retry_config=_RETRY)  # type: ignore[arg-type]
    url = host if "://" in host else f"http://{host}"
    options["allow_http"] = url.startswith("http://")
    # A constant in place of credentials, which an emulator does not look at.
    token = {"token": "none", "expires_at": None}
    given: Any = {"base_url": url, "skip_signature": True, "credential_provider": lambda: token}
    return GCSStore(bucket, client_options=options, retry_config=_RETRY, **given)  # type: ignore[arg-type]


class ObjectStore:
    """A bucket. Safe to use from several threads."""

    def __init__(self, url: str, bucket: Any):
        self.url = url
        self._bucket = bucket
        self._generations = urls.scheme_of(url) == "gs"
        """Whether conditions on writes name generations rather than entity tags."""

    def walk(self, prefix: str = "") -> Mapping[str, Stat]:
        stats: dict[str, Stat] = {}
        with remote_errors(f"{self.url}/{prefix}", "listed"):
            for page in obstore.list(self._bucket, prefix or None, chunk_size=1000):
                raise_if_cancelled()
                stats |= {meta["path"]: _stat(meta) for meta in page}
        return stats

    def names_in(self, prefix: str = "") -> tuple[Mapping[str, Stat], Sequence[str]]:
        with remote_errors(f"{self.url}/{prefix}", "listed"):
            page = obstore.list_with_delimiter(self._bucket, prefix or None)
        objects = {meta["path"]: _stat(meta) for meta in page["objects"]}
        return objects, [f"{name.rstrip('/')}/" for name in page["common_prefixes"]]

    def stat(self, name: str) -> Stat | None:
        meta = self._head(name)
        return None if meta is None else _stat(meta)

    def _head(self, name: str) -> Any:
        with remote_errors(f"{self.url}/{name}"), suppress(FileNotFoundError):
            return obstore.head(self._bucket, name)
        return None

    def now(self) -> int:
        """The store's own time: that of a small object, which is written and deleted for this."""
        name = f".ckpt-surgery-clock-{secrets.token_hex(8)}"
        self.put(name, b"")
        stat = self.stat(name)
        self.delete([name])
        if stat is None:
            raise missing(f"{self.url}/{name}")
        return stat.modified

    def read(self, name: str, start: int = 0, stop: int | None = None, version: str | None = None) -> bytes:
        if stop is not None and stop <= start:
            return b""
        options: Any = {}
        if version is not None:
            options["if_match"] = version
        if stop is not None:
            options["range"] = (start, stop)
        elif start:
            options["range"] = {"offset": start}
        url = f"{self.url}/{name}"
        with remote_errors(url):
            try:
                data = obstore.get(self._bucket, name, options=options).bytes().to_bytes()
            except FileNotFoundError as error:
                raise missing(url) from error
            except PreconditionError as error:
                raise changed(url) from error
        if stop is not None and len(data) != stop - start:
            raise SourceError(f"{url} ends at byte {start + len(data)}, where {stop} belong")
        return data

    def read_many(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        requests = _joined(ranges)
        parts = [part for part, _ in requests]
        results: list[bytes] = [b""] * len(ranges)
        with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="read") as pool:
            contents = (pool.map if len(parts) > 1 else map)(self._read_range, parts)
            for (part, members), data in zip(requests, contents, strict=True):
                for i in members:
                    results[i] = data[ranges[i].start - part.start : ranges[i].stop - part.start]
        return results

    def _read_range(self, part: ByteRange) -> bytes:
        return self.read(part.name, part.start, part.stop, part.version)

    def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
        try:
            return self._put(name, data, len(data), only)
        except ConditionFailed:
            # A request is repeated where its answer was lost, and then finds what it wrote itself.
            stat = self.stat(name)
            with suppress(SourceError):
                if stat and stat.size == len(data) and self.read(name, version=stat.version) == bytes(data):
                    return stat
            raise

    def upload(self, name: str, file: Path, only: Condition = Only.ANY) -> Stat:
        """It ends where `raise_if_cancelled` would raise: nothing is there then."""
        with _Reader(file) as opened:
            try:
                return self._put(name, opened, file.stat().st_size, only)
            except OSError:  # obstore turns everything that a reader raises into it
                raise_if_cancelled()
                raise

    def _put(self, name: str, data: "Buffer | _Reader", size: int, only: Condition) -> Stat:
        url = f"{self.url}/{name}"
        parts = size >= MULTIPART_BYTES
        body: Any = data if not isinstance(data, bytearray | memoryview) else bytes(data)
        mode = self._mode(name, only, parts)
        with remote_errors(url, "written"):
            try:
                answer = obstore.put(
                    self._bucket, name, body, mode=mode, use_multipart=parts, chunk_size=PART_BYTES
                )
            except (AlreadyExistsError, PreconditionError) as error:
                raise already_there(url) from error
        return Stat(size, str(answer["e_tag"]))

    def _mode(self, name: str, only: Condition, parts: bool) -> Any:
        """The condition as obstore takes it. Uploads in parts take none, so theirs is checked before."""
        if only is Only.ANY:
            return "overwrite"
        version = only if isinstance(only, str) else None
        if not parts and (version is None or not self._generations):
            return "create" if version is None else {"e_tag": version}
        meta = self._head(name)
        if (None if meta is None else meta["e_tag"]) != version:
            raise already_there(f"{self.url}/{name}")
        return "overwrite" if parts else {"e_tag": version, "version": meta["version"]}

    def copies(self, source: str, size: int) -> bool:
        """Whether an object lies in this bucket, and is not too large for one request of S3."""
        return source.startswith(f"{self.url}/") and (self._generations or size <= COPY_BYTES)

    def copy(self, source: str, name: str) -> None:
        _, key = urls.split(source)
        with remote_errors(source, "copied"):
            try:
                obstore.copy(self._bucket, key, name, overwrite=True)
            except FileNotFoundError as error:
                raise missing(source) from error

    def delete(self, names: Iterable[str]) -> None:
        if self._generations:
            # One that is not there is an error of this service, which would leave the rest of a batch there.
            with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="delete") as pool:
                list(pool.map(self._delete_one, names))
            return
        every = list(names)
        for at in range(0, len(every), BATCH):
            batch = every[at : at + BATCH]
            with remote_errors(f"{self.url}/{batch[0]}", "deleted"):
                obstore.delete(self._bucket, batch)

    def _delete_one(self, name: str) -> None:
        with remote_errors(f"{self.url}/{name}", "deleted"), suppress(FileNotFoundError):
            obstore.delete(self._bucket, name)


def _joined(ranges: Sequence[ByteRange]) -> Sequence[tuple[ByteRange, Sequence[int]]]:
    """Requests to send, and the positions of the ranges in them: each range lies in exactly one request."""
    requests: list[tuple[ByteRange, list[int]]] = []
    names = [(part.name, part.version or "", part.start) for part in ranges]
    for i in sorted(range(len(ranges)), key=names.__getitem__):
        part = ranges[i]
        whole, members = requests[-1] if requests else (part, [])
        stop = max(whole.stop, part.stop)
        same = (whole.name, whole.version) == (part.name, part.version)
        near = part.start - whole.stop < GAP_BYTES and stop - whole.start <= JOINED_BYTES
        if requests and same and near:
            members.append(i)
            requests[-1] = replace(whole, stop=stop), members
        else:
            requests.append((part, [i]))
    return requests


class _Reader(io.FileIO):
    """A file that is read until the thread's work is cancelled."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise_if_cancelled()
        return super().read(size)


def _stat(meta: Any) -> Stat:
    return Stat(meta["size"], str(meta["e_tag"]), int(meta["last_modified"].timestamp() * 1e9))
