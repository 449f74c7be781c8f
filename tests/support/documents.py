"""JSON documents against the classes that describe them."""

import json
from typing import Any

from pydantic import TypeAdapter

from ckpt_surgery.cli.json_page import DOCUMENTS


def check_document(name: str, document: Any) -> None:
    """Raise ValidationError unless this is the document of that name, with no other member."""
    TypeAdapter(DOCUMENTS[name]).validate_json(json.dumps(document), strict=True)
