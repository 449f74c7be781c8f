"""Checkpoints in object stores that are just being replaced, or were when the run that did it was ended.

A run that begins to publish says so in its journal below the destination, with the documents that it puts.
The last of them, the marker, makes the checkpoint complete. Before it is there, what lies at the destination
may be documents of two checkpoints, which nobody may take for one.
"""

import os
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import directory_names, exists

SWITCHING = "switching"
"""State in the journal of a run that publishes: whoever comes next carries it to its end."""


def check_published(directory: str) -> None:
    """Refuse a checkpoint whose publication has begun and has not come to its end.

    Asks a store for nothing where the directory was listed before, unless there is a journal.
    """
    if not is_published(directory):
        problem = f"{shown(directory)} is not committed: a run has begun to publish it and has not finished"
        hint = "Wait for that run. If it has ended, run it again, or `ckpt-surgery commit` it."
        raise SourceError(problem, hint=hint)


def is_published(directory: str) -> bool:
    """Whether no run has begun to publish there without coming to its end."""
    own = os.path.join(directory, OWN.rstrip("/"))
    if not exists(own):
        return True
    for name in directory_names(own).files:
        try:
            journal = read_json(os.path.join(own, name)) if name.endswith(".json") else {}
        except SourceError:  # it is gone, for its run has come to its end, or it is none
            continue
        if journal.get("state") == SWITCHING and not _is_complete(directory, journal):
            return False
    return True


def _is_complete(directory: str, journal: dict[str, Any]) -> bool:
    """Whether the last of the documents is there; without documents, the last of the data that waited.

    That can be the older checkpoint's until the place where the new one waited is empty.
    """
    documents, waiting = journal.get("documents") or {}, journal.get("waiting") or {}
    if documents:
        return exists(os.path.join(directory, str(list(documents)[-1])))
    if not waiting:
        return False
    there, waits = (exists(os.path.join(directory, str(path))) for path in list(waiting.items())[-1])
    return there and not waits
