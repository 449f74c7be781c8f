"""Paths and URLs as text: telling them apart, and checking what the user gave.

A text that opens bytes is a path of the local file system, or a URL of an object store: `s3://bucket/key` or
`gs://bucket/key`. `file:///path` means the path, and becomes it as soon as it is read.
"""

import os
import re
from urllib.parse import unquote

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown

REGISTERED: set[str] = set()
"""Schemes of stores that were registered in this process."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(text: str) -> str | None:
    """The scheme of a URL; None for a path."""
    match = _URL.match(text)
    return None if match is None else match[1].lower()


def is_url(text: str) -> bool:
    """Whether a text is a URL of a store rather than a path of the local file system."""
    return scheme_of(text) is not None


def checked(text: str) -> str:
    """Check a path or URL that the user gave, and return it in the form that everything else expects.

    That is the path of a `file://` URL, a URL without slashes at its end, and a path as it is.

    Raises UsageError for a scheme that is not known, and for a bucket without a path in it.
    """
    scheme = scheme_of(text)
    if scheme is None:
        return text
    rest = text.split("://", 1)[1]
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            hint = "Write three slashes before an absolute path: `file:///path`."
            raise UsageError(f"{shown(text)} does not name a file on this machine", hint=hint)
        return unquote(f"/{path}", errors="surrogateescape")
    if scheme not in {"s3", "gs", *REGISTERED}:
        known = "Known: s3://, gs://, file://, and paths."
        raise UsageError(f"{shown(text)}: the scheme `{shown(scheme)}://` is not known", hint=known)
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    if not bucket or any(part in ("", ".", "..") for part in key.split("/")):
        raise UsageError(
            f"{shown(text)} does not name a path in a bucket",
            hint=f"Write it as `{scheme}://BUCKET/PATH`, without empty parts, `.` and `..`: names in buckets "
            "are taken literally, and a checkpoint is never a whole bucket.",
        )
    return f"{scheme}://{bucket}/{key}"


def absolute(text: str) -> str:
    """The absolute path, with links as they are; a URL is its own."""
    return text if is_url(text) else os.path.abspath(text)


def near(text: str) -> str:
    """A path below the working directory relative to it; any other path, or a URL, as it is."""
    relative = text if is_url(text) else os.path.relpath(text)
    return text if relative.split(os.sep)[0] == os.pardir else relative


def split(url: str) -> tuple[str, str]:
    """The root of a URL's store, such as `s3://bucket`, and the name in it, without slashes at its ends."""
    scheme, rest = url.split("://", 1)
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key.strip("/")
