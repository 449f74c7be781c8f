"""Changing documents that lie in files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Let `change` alter a file's JSON document in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
