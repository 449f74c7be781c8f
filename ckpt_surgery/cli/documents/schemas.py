"""JSON Schemas of the JSON documents, from the classes of the documents and their docstrings."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from ckpt_surgery.api.cleaning import CleanDocument
from ckpt_surgery.api.environment import EnvironmentDocument
from ckpt_surgery.api.inferring import InferDocument
from ckpt_surgery.api.inverting import InvertDocument
from ckpt_surgery.cli.documents.problems import ErrorDocument, LintDocument
from ckpt_surgery.core.documents import UNSET, member_name
from ckpt_surgery.report.diff_document import DiffDocument
from ckpt_surgery.report.explanation import ExplainDocument
from ckpt_surgery.report.inspection import InspectDocument
from ckpt_surgery.report.results import CommittedDocument, PlanDocument, ShardResult
from ckpt_surgery.report.verification import VerifyDocument

DOCUMENTS: Mapping[str, type] = {
    "plan": PlanDocument,
    "explain": ExplainDocument,
    "infer": InferDocument,
    "inspect": InspectDocument,
    "diff": DiffDocument,
    "env": EnvironmentDocument,
    "clean": CleanDocument,
    "verify": VerifyDocument,
    "lint": LintDocument,
    "invert": InvertDocument,
    "error": ErrorDocument,
    "shard": ShardResult,
    "committed": CommittedDocument,
}
"""The documents by the name that `schema` prints their JSON Schema under."""


def document_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document."""
    schema = TypeAdapter(DOCUMENTS[name]).json_schema(schema_generator=_Generator)
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**dialect, **schema, "title": f"ckpt-surgery {name}"}


class _Generator(GenerateJsonSchema):
    """Adds to dataclasses what pydantic says of its own models. Members of later versions are allowed."""

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a member with a default."""
        if schema.get("default") is UNSET:
            inner = self.generate_inner(schema["schema"])
            return {**inner, "default": [] if inner.get("type") == "array" else None}
        return super().default_schema(schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a document; a member is required unless its default is `UNSET`."""
        whole = super().dataclass_schema(schema)
        del whole["additionalProperties"]
        texts = {n: text for base in reversed(schema["cls"].__mro__) for n, text in _docstrings(base).items()}
        optional = {member_name(field.name) for field in fields(schema["cls"]) if field.default is UNSET}
        members = {
            name: {**member, "description": texts[name]} for name, member in whole["properties"].items()
        }
        required = [name for name in members if name not in optional]
        for name in required:
            members[name].pop("default", None)
        return {**whole, "properties": members, "required": required}


@cache
def _docstrings(document: type) -> Mapping[str, str]:
    """The docstrings of the members that a class defines itself."""
    if not is_dataclass(document):
        return {}
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(document))).body
    assert isinstance(definition, ast.ClassDef)
    members = ((m, text.value) for m, text in pairwise(definition.body) if isinstance(text, ast.Expr))
    return {
        member_name(ast.unparse(member.target)): inspect.cleandoc(ast.literal_eval(text))
        for member, text in members
        if isinstance(member, ast.AnnAssign)
    }
