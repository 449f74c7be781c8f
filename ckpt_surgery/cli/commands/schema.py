"""`schema`: the recipe language, and the documents of `--json`, as JSON Schema."""

from typing import Annotated

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import Argument
from ckpt_surgery.cli.terminal.console import STDOUT, write_document
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown

RECIPE = "recipe"
EXAMPLES = {
    "schema": "On standard output.",
    "schema > recipe.schema.json": "Into a file, for an editor.",
    "schema plan": "Of the document that `plan --json` writes.",
}


@command("schema", EXAMPLES, "Print the JSON Schema of recipes, or of a JSON document.")
def schema(name: Annotated[str, Argument("[NAME]", complete=None, more={"default": RECIPE})]) -> int:
    """Print the JSON Schema of the recipe language; editors check and complete recipes with it.

    With a NAME, such as `plan`, `inspect` or `error`: that of a document of --json.
    """
    import ckpt_surgery

    if name == RECIPE:
        write_document(ckpt_surgery.schema(), STDOUT)
        return 0
    from ckpt_surgery.cli.documents.schemas import DOCUMENTS, document_schema

    if name not in DOCUMENTS:
        hint = f"There are: {', '.join((RECIPE, *DOCUMENTS))}."
        raise UsageError(f"not a document: `{shown(name)}`", hint=hint)
    write_document(document_schema(name), STDOUT)
    return 0
