"""An emulator of Google Cloud Storage: the parts of its XML and JSON APIs that obstore and TensorStore use.

Objects have generations, and requests have the preconditions of the service. Sources: the references of the
Cloud Storage XML API and JSON API, cloud.google.com/storage/docs.
"""

import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, unquote
from wsgiref.types import StartResponse, WSGIEnvironment
from xml.sax.saxutils import escape

from tests.emulators.disturbing import Disturbance, served

_NUMBERS = itertools.count()
_JSON = re.compile(r"/(?:download/)?storage/v1/b/(?P<bucket>[^/]+)/o(?:/(?P<name>.+))?")
Headers = dict[str, str]
Answer = tuple[int, Headers, bytes]


@dataclass(frozen=True)
class Stored:
    """An object."""

    data: bytes
    generation: int
    modified: float

    @property
    def headers(self) -> Headers:
        return {
            "ETag": f'"{hashlib.md5(self.data).hexdigest()}-{self.generation}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": formatdate(self.modified, usegmt=True),
            "Content-Type": "application/octet-stream",
        }


@dataclass
class Application:
    """The service, for any number of buckets. A WSGI application."""

    buckets: dict[str, dict[str, Stored]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """Parts of unfinished uploads, by the upload's id and their numbers."""
    generations: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000_000_000))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        request = Request(
            environ["REQUEST_METHOD"],
            environ.get("RAW_URI", environ["PATH_INFO"]).partition("?")[0],
            {name: found[0] for name, found in parse_qs(environ.get("QUERY_STRING", ""), True).items()},
            {name[5:].lower(): value for name, value in environ.items() if name.startswith("HTTP_")},
            environ["wsgi.input"].read(length),
        )
        with self.lock:
            status, headers, body = self.answer(request)
        headers = {"Content-Length": str(len(body)), "Date": formatdate(usegmt=True)} | headers
        start_response(f"{status} X", list(headers.items()))
        return [b"" if request.method == "HEAD" else body]

    def answer(self, request: "Request") -> Answer:
        as_json = _JSON.fullmatch(request.path)
        if as_json is not None:
            name = as_json["name"]
            bucket = self.buckets.get(unquote(as_json["bucket"]))
            if bucket is None:
                return 404, {}, b"{}"
            if name is None:
                return listed_json(bucket, request.query)
            return self.object_json(bucket, unquote(name), request)
        bucket_name, _, name = request.path[1:].partition("/")
        bucket = self.buckets.get(unquote(bucket_name))
        if bucket is None:
            return _error(404, "NoSuchBucket")
        if not name:
            return listed_xml(bucket, request.query)
        return self.object_xml(bucket, unquote(name), request)

    def object_xml(self, bucket: dict[str, Stored], name: str, request: "Request") -> Answer:
        query = request.query
        match request.method:
            case "GET" | "HEAD":
                return read(bucket.get(name), request)
            case "DELETE":
                upload = query.get("uploadId")
                found = bucket.pop(name, None) if upload is None else self.uploads.pop(upload, None)
                return _error(404, "NoSuchKey") if found is None else (204, {}, b"")
            case "POST" if "uploads" in query:
                upload = f"upload-{next(_NUMBERS)}"
                self.uploads[upload] = {}
                return 200, {}, _xml("InitiateMultipartUploadResult", "UploadId", upload)
            case "POST":
                parts = self.uploads.pop(query["uploadId"])
                named = map(int, re.findall(rb"<PartNumber>(\d+)<", request.body))
                status, headers, body = self.put(bucket, name, b"".join(parts[n] for n in named), request)
                tag = headers.get("ETag")
                return status, headers, _xml("CompleteMultipartUploadResult", "ETag", tag) if tag else body
            case "PUT" if "partNumber" in query:
                self.uploads[query["uploadId"]][int(query["partNumber"])] = request.body
                return 200, {"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'}, b""
            case "PUT" if "x_goog_copy_source" in request.headers:
                where, _, source = unquote(request.headers["x_goog_copy_source"]).lstrip("/").partition("/")
                origin = self.buckets.get(where, {}).get(source)
                if origin is None:
                    return _error(404, "NoSuchKey")
                return self.put(bucket, name, origin.data, request)
            case "PUT":
                return self.put(bucket, name, request.body, request)
        return _error(405, "MethodNotAllowed")

    def put(self, bucket: dict[str, Stored], name: str, data: bytes, request: "Request") -> Answer:
        there = bucket.get(name)
        wanted = request.headers.get("x_goog_if_generation_match")
        if wanted is not None and int(wanted) != (0 if there is None else there.generation):
            return _error(412, "PreconditionFailed")
        bucket[name] = Stored(data, next(self.generations), time.time())
        return 200, bucket[name].headers, b""

    def object_json(self, bucket: dict[str, Stored], name: str, request: "Request") -> Answer:
        if request.method != "GET":
            return 405, {}, b"{}"
        found = bucket.get(name)
        if found is None:
            return 404, {}, b"{}"
        for query in ("generation", "ifGenerationMatch", "ifGenerationNotMatch"):
            same = request.query.get(query) == str(found.generation)
            if query in request.query and same == query.endswith("NotMatch"):
                return 304 if same else 412, found.headers, b""
        if request.query.get("alt") == "media":
            return read(found, request)
        return 200, {"Content-Type": "application/json"}, json.dumps(_as_json(name, found)).encode()


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    """As it was sent, escaped."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By names in lower case with `_` for `-`."""
    body: bytes


def read(found: Stored | None, request: Request) -> Answer:
    if found is None:
        return _error(404, "NoSuchKey")
    wanted = request.headers.get("if_match")
    if wanted is not None and wanted.strip('"') != found.headers["ETag"].strip('"'):
        return _error(412, "PreconditionFailed")
    if request.method == "HEAD":
        return 200, {**found.headers, "Content-Length": str(len(found.data))}, b""
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
    if asked is None:
        return 200, found.headers, found.data
    size = len(found.data)
    start = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
    stop = min(size, int(asked[2]) + 1) if asked[1] and asked[2] else size
    if start >= size:
        return 416, {"Content-Range": f"bytes */{size}"}, b""
    ranged = {**found.headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}
    return 206, ranged, found.data[start:stop]


def _page(
    bucket: Mapping[str, Stored], query: Mapping[str, str], token: str, most: str
) -> tuple[list[str], list[str], str]:
    """Names, prefixes, and the token of the next page."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    names: list[str] = []
    prefixes: list[str] = []
    limit = min(1000, int(query.get(most, 1000)))
    for name in sorted(bucket):
        if not name.startswith(prefix) or name <= query.get(token, ""):
            continue
        head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if cut and prefix + head + cut in prefixes:
            continue
        if len(names) + len(prefixes) == limit:
            return names, prefixes, max([*names, *(f"{folder}\U0010ffff" for folder in prefixes)])
        if cut:
            prefixes.append(prefix + head + cut)
        else:
            names.append(name)
    return names, prefixes, ""


def listed_xml(bucket: Mapping[str, Stored], query: Mapping[str, str]) -> Answer:
    names, prefixes, token = _page(bucket, query, "continuation-token", "max-keys")
    modified = {n: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(bucket[n].modified)) for n in names}
    contents = "".join(
        f"<Contents><Key>{escape(name)}</Key><Generation>{bucket[name].generation}</Generation>"
        f"<LastModified>{modified[name]}.000Z</LastModified><ETag>{escape(bucket[name].headers['ETag'])}</ETag>"
        f"<Size>{len(bucket[name].data)}</Size></Contents>"
        for name in names
    )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in prefixes)
    more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
    more += f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>"
    body = f"<ListBucketResult>{more}{contents}{common}</ListBucketResult>"
    return 200, {"Content-Type": "application/xml"}, body.encode()


def listed_json(bucket: Mapping[str, Stored], query: Mapping[str, str]) -> Answer:
    names, prefixes, token = _page(bucket, query, "pageToken", "maxResults")
    document = {"items": [_as_json(name, bucket[name]) for name in names], "prefixes": prefixes}
    more = {"nextPageToken": token} if token else {}
    return 200, {"Content-Type": "application/json"}, json.dumps(document | more).encode()


def _as_json(name: str, found: Stored) -> dict[str, str]:
    return {
        "name": name,
        "size": str(len(found.data)),
        "generation": str(found.generation),
        "metageneration": "1",
        "timeCreated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.modified)),
        "updated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.modified)),
    }


def _error(status: int, code: str) -> Answer:
    return status, {"Content-Type": "application/xml"}, _xml("Error", "Code", code)


def _xml(document: str, member: str, text: str) -> bytes:
    return f"<{document}><{member}>{text}</{member}></{document}>".encode()


@dataclass(frozen=True)
class Emulator:
    """A running server."""

    endpoint: str
    disturbance: Disturbance
    application: Application

    def bucket(self) -> str:
        """The URL of a new bucket."""
        name = f"bucket-{next(_NUMBERS)}"
        self.application.buckets[name] = {}
        return f"gs://{name}"


@contextmanager
def emulator() -> Iterator[Emulator]:
    """Within this context, a server runs in a thread."""
    application = Application()
    disturbance = Disturbance(application)
    with served(disturbance) as endpoint:
        yield Emulator(endpoint, disturbance, application)


def environment(endpoint: str) -> Mapping[str, str]:
    """Variables with which programs ask this server, and no metadata service of the machine."""
    return {
        "STORAGE_EMULATOR_HOST": endpoint,
        "TENSORSTORE_GCS_HTTP_URL": endpoint,
        "GCE_METADATA_HOST": "127.0.0.1:9",
        "GCE_METADATA_ROOT": "127.0.0.1:9",
        "NO_GCE_CHECK": "true",
    }
