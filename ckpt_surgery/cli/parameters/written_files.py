"""Check the files of options such as `--json`: their names, and the files that they may replace."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpt_surgery.cli.terminal.console import STDOUT
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown


def check_json_name(document: str | None) -> None:
    """Refuse a file of `--json` whose name does not say so: it was meant as a path of the command."""
    if document is None or document == STDOUT or document.endswith(".json"):
        return
    path = Path(document)
    if path.is_file() or not path.exists():  # devices and pipes have names of their own
        raise UsageError(
            f"`--json {shown(document)}`: the name of a JSON document ends in `.json`",
            hint=f"For stdout write `--json -`, so that {shown(document)} is an argument of its own.",
        )


def check_kept(overwrite: bool, *, recipe: str | None = None, page: str | None = None) -> None:
    """Refuse to replace a file with a recipe, or one that is no page of a report with such a page."""
    from ckpt_surgery.inputs import output_files

    if recipe is not None:
        output_files.check_kept(recipe, overwrite)
    if page is not None:
        output_files.check_kept(page, overwrite, output_files.is_page)


def check_documents(
    documents: Sequence[str | None],
    recipe: Any,
    sources: tuple[str, ...],
    dst: str | None,
    options: Mapping[str, Any],
) -> None:
    """Refuse documents that would be written over one another, or over or into what a plan names.

    The first of them is that of `--json`. The other arguments are those of `api.plan`.
    """
    files = [document for document in documents if document not in (None, STDOUT)]
    if files:
        from ckpt_surgery.inputs import output_files
        from ckpt_surgery.inputs.request import requested

        named = output_files.named_in(requested(recipe, sources, dst, options))
        output_files.check_documents(files, *named)
    check_json_name(documents[0])


def check_document_beside(document: str | None, *checkpoints: str, **chosen: Any) -> None:
    """Refuse a document that would be written over or into one of the checkpoints that a command reads.

    `chosen`: the format, step and item that all of them are read with.
    """
    if document not in (None, STDOUT):
        from ckpt_surgery.inputs import output_files

        read = [output_files.CheckpointPath(path, **chosen) for path in checkpoints]
        output_files.check_documents([document], read)
    check_json_name(document)
