"""Prints docs/json.md, the page about JSON documents."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ckpt_surgery.cli.documents.schemas import DOCUMENTS, document_schema

HEAD = """\
# JSON documents

Generated from the code by `make docs`; a test checks that it is current. With `--json`, stdout is one of
these documents and nothing else. Sizes are in bytes. NaN and infinities are the texts `NaN`, `Infinity` and
`-Infinity`. `ckpt-surgery schema NAME` prints the JSON Schema of a document, NAME being a heading of this
page. Members that are marked with * may be missing. A later version may add members; where it takes one away,
or gives it another meaning, it has another number as `schema`."""


def page() -> str:
    """The page, as Markdown."""
    return "\n\n".join([HEAD, *(part for name in DOCUMENTS for part in _section(name))]) + "\n"


def _section(name: str) -> Iterator[str]:
    schema = document_schema(name)
    yield f"## {name}"
    yield f"Of {schema['description']}"
    yield _table(schema)
    for title, part in schema.get("$defs", {}).items():
        yield f"`{title}`: {part['description']}"
        yield _table(part)


def _table(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [("member", "value", "meaning"), ("---", "---", "---")]
    for name, field in schema["properties"].items():
        mark = "" if name in required else " *"
        rows.append((f"`{name}`{mark}", _value(field), " ".join(field["description"].split())))
    return "\n".join(f"| {' | '.join(cell.replace('|', _BAR) for cell in row)} |" for row in rows)


def _value(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_value(option) for option in field["anyOf"])
    if "$ref" in field:
        return f"`{field['$ref'].rpartition('/')[2]}`"
    if "const" in field:
        return f"`{str(field['const']).lower()}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_value(field['items'])}"
    if isinstance(field.get("additionalProperties"), Mapping):
        return f"mapping to {_value(field['additionalProperties'])}"
    return _TYPES[field.get("type", "")]


_BAR = "\\|"
_TYPES = {
    "": "anything",
    "string": "text",
    "number": "number",
    "integer": "integer",
    "object": "mapping",
    "boolean": "`true` or `false`",
    "null": "null",
}

if __name__ == "__main__":
    sys.stdout.write(page())
