"""JSON documents against the classes that describe them."""

import json
from typing import Any

from pydantic import TypeAdapter

from ckpt_surgery.cli.documents.schemas import DOCUMENTS
from ckpt_surgery.core.documents import plain
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.plan_json import planned_document


def check_document(name: str, document: Any) -> None:
    """Raise ValidationError unless this is the document of that name, with no other member."""
    TypeAdapter(DOCUMENTS[name]).validate_json(json.dumps(document), strict=True)


def plan_json(plan: Plan) -> Any:
    """The document of a plan in JSON's types."""
    return plain(planned_document(plan))
