"""What the system refused to TensorStore, which tells it in the text of its errors."""

import os
import re

_NUMBER = re.compile(r"\bos_error_code='(\d+)'|\bOS error (\d+)\b")
_FILE = re.compile(r'"(/[^"]*)"')
_UNFINISHED = ".__lock"
"""Ending of the names under which TensorStore writes files, before it renames them."""


def system_error(error: BaseException) -> OSError | None:
    """The system's error behind one of TensorStore's, with the path that it names, or that error itself.

    None where TensorStore itself refused something, such as bytes that it cannot decode.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error
    text = str(error)
    number = _NUMBER.search(text)
    if number is None:
        return None
    code = int(number[1] or number[2])
    files = _FILE.findall(text.partition(" [")[0])
    return OSError(code, os.strerror(code), files[-1].removesuffix(_UNFINISHED) if files else None)
