"""The rest of a step that one item is written for: its other items and files, and its document."""

import json
import os
from pathlib import Path
from typing import Any

from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.formats.orbax.documents import HANDLER, about_checkpoint
from ckpt_surgery.formats.shared.orbax_layout import CHECKPOINT_METADATA, is_item
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.linking import link_rest
from ckpt_surgery.storage.listing import directory_names, exists
from ckpt_surgery.storage.record_files import RECORD_NAME

JSON_HANDLER = "orbax.checkpoint._src.handlers.json_checkpoint_handler.JsonCheckpointHandler"
REWRITTEN = frozenset({CHECKPOINT_METADATA, RECORD_NAME})
"""Files of a step that are written anew with each item."""


def link_others(step: Path, work: Path, item: str) -> None:
    """Fill a new step with everything of an old one but `item`. Raises OSError."""
    link_rest(step, work, keep={item}, leave_out={item, *REWRITTEN})


def documents_of_step(step: str, item: str, started: int) -> dict[str, bytes]:
    """The files of a step that change with an item: its document, and the record with that one's checksum.

    All that the document says of other things stays. `step`: path or URL of the step that exists. `started`:
    when the run began, in nanoseconds since the epoch.
    """
    about = json.dumps(_about_step(step, item, started)).encode()
    record = {"documents": {CHECKPOINT_METADATA: [len(about), bytes_crc(about)]}}
    return {CHECKPOINT_METADATA: about, RECORD_NAME: json.dumps(record).encode()}


def _about_step(step: str, item: str, started: int) -> dict[str, Any]:
    path, new = os.path.join(step, CHECKPOINT_METADATA), about_checkpoint(item, started, {})
    old = read_json(path) if exists(path) else {}
    listed = old.get("item_handlers")
    handlers = {**_handlers_of(step, item), **(listed if isinstance(listed, dict) else {}), item: HANDLER}
    kept = {**new, **old, "item_handlers": handlers}
    return kept | {"commit_timestamp_nsecs": new["commit_timestamp_nsecs"]}


def _handlers_of(step: str, item: str) -> dict[str, str]:
    """Handlers of the other items by what they hold: without one, Orbax restores no item of the step."""
    found = {}
    for name in directory_names(step).directories:
        path = os.path.join(step, name)
        if name in (item, OWN.rstrip("/")):
            continue
        if is_item(path):
            found[name] = HANDLER
        elif exists(os.path.join(path, "metadata")) or exists(os.path.join(path, "metrics")):
            found[name] = JSON_HANDLER
    return found
