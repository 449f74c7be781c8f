"""What the name of a destination says about its format."""

import os

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.foreign_names import foreign
from ckpt_surgery.formats.known import formats, formats_to_write, writable


def format_for(name: str) -> str | None:
    """The format with the longest suffix that a name ends with; None: there is none.

    It may be a format that is only read.
    """
    endings = {suffix.lower(): known.name for known in formats().values() for suffix in known.suffixes}
    matching = [suffix for suffix in endings if name.lower().endswith(suffix)]
    return endings[max(matching, key=len)] if matching else None


def promised(name: str) -> str | None:
    """What a name says about a file: a format, or a kind of file of other programs. None: nothing."""
    return format_for(name) or foreign(name)


def check_name(path: str) -> None:
    """Refuse a destination that is named like something that cannot be written here.

    Called if no format is given. Raises UsageError.
    """
    name = os.path.basename(urls.absolute(path))
    format = format_for(name)
    if format in writable() or (what := promised(name)) is None:
        return
    raise UsageError(
        f"{shown(path)}: its name says {what}, which cannot be written",
        hint=f"{formats_to_write()} Name the destination for one of them, or say which: `format=NAME`.",
    )
