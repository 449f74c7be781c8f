"""docs/json.md, and the JSON Schemas of documents."""

import json
from pathlib import Path

import pytest

from ckpt_surgery.cli.documents.schemas import DOCUMENTS, document_schema
from tests.support.ci_scripts import script
from tests.support.command_line import run

PAGE = Path(__file__).parents[3] / "docs" / "json.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == script("json_page").page()


def test_another_name_is_refused_with_the_names_there_are() -> None:
    done = run("schema", "plane")
    assert (done.exit_code, done.stdout) == (2, "")
    names = (
        "recipe, plan, explain, infer, inspect, diff, env, clean, verify, lint, "
        "invert, error, shard, committed"
    )
    assert done.stderr.endswith(f"not a document: `plane`\n  There are: {names}.\n")
    assert run("schema").stdout == run("schema", "recipe").stdout


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_prints_a_schema_that_describes_every_member_and_has_room_for_more(name: str) -> None:
    schema = document_schema(name)
    done = run("schema", name)
    assert (done.exit_code, json.loads(done.stdout)) == (0, schema)
    mappings = [schema, *schema.get("$defs", {}).values()]
    assert all(field["description"] for one in mappings for field in one["properties"].values())
    assert '"additionalProperties": false' not in json.dumps(schema)
    assert schema["properties"]["schema"]["const"] == 1
    assert "schema" in schema["required"]
