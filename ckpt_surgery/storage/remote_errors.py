"""Errors of object stores, with the object's URL: never with a credential, and in one line."""

import contextlib
import re
from collections.abc import Iterator

import obstore.exceptions as kinds

from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.store import ConditionFailed

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
    except (kinds.PermissionDeniedError, kinds.UnauthenticatedError) as error:
        raise _refused(url, action, f"the store refuses it{_code(str(error))}", _CREDENTIALS) from None
    except FileNotFoundError as error:
        raise _refused(
            url, action, f"the bucket or object does not exist{_code(str(error))}", _REACH
        ) from None
    except ValueError as error:
        if "parse path" not in str(error):
            raise
        why = "its name has a part or a character that objects cannot have"
        raise _refused(url, action, why, "Choose another name.") from None
    except kinds.BaseError as error:
        raise _refused(url, action, *_reason(str(error))) from None


def _refused(url: str, action: str, why: str, hint: str) -> StorageError:
    return StorageError(f"{shown(url)} cannot be {action}: {why}", hint=hint)


def _reason(text: str) -> tuple[str, str]:
    """Reason why a request failed, and what to do. The library's text is long, and may quote the request."""
    status = _STATUS.search(text)
    number = next(filter(None, status.groups()), "") if status else ""
    if number == "501":
        return (
            "the store does not know conditional writes, without which two runs could mix",
            "Use a store that has them, or write to a local directory and copy the result.",
        )
    if number in ("401", "403"):
        return f"the store refuses it (HTTP {number}{_code(text)})", _CREDENTIALS
    if number:
        return f"the store answers HTTP {number}{_code(text)}", "Try again; the store's own pages tell more."
    if "dns error" in text or "Connect" in text or "error sending request" in text or "timed out" in text:
        return "the store cannot be reached", _REACH
    return "the store could not answer", _REACH


def _code(text: str) -> str:
    match = _CODE.search(text)
    return "" if match is None else f", {match[1]}"


def already_there(url: str) -> ConditionFailed:
    """The error to raise where the condition of a write does not hold."""
    return ConditionFailed(f"{shown(url)} was written by another process meanwhile")
