"""JSON documents in files of a checkpoint, read so that every flaw is a SourceError with the path."""

import json
from typing import Any, TypeVar

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.reading import read_file

T = TypeVar("T")


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file. Raises SourceError where the file is missing or holds no such object."""
    return _parsed(path, read_file(path))


def read_form(path: str, form: type[T]) -> T:
    """The JSON document in a file as a msgspec type: types are checked, members without a field ignored.

    Takes half the time and memory of `read_json` for documents with a record for each leaf. Raises
    SourceError where the file is missing, is not JSON, or does not fit the type.
    """
    import msgspec

    text = read_file(path)
    try:
        return msgspec.json.decode(text, type=form)
    except (ValueError, RecursionError):
        # Python accepts more as JSON (NaN, lone surrogates), and its messages are clearer.
        document = _parsed(path, text)
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise malformed(path, error) from error


def malformed(path: str, error: Exception) -> SourceError:
    """The error to raise for a JSON document whose members are not what they should be."""
    return SourceError(f"{shown(path)} is malformed: {shown(str(error))}", hint=DAMAGED)


def _parsed(path: str, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{shown(path)} is not valid JSON: {shown(str(error))}", hint=DAMAGED) from error
    if not isinstance(value, dict):
        raise SourceError(
            f"{shown(path)} holds a JSON {type(value).__name__} where an object belongs", hint=DAMAGED
        )
    return value
