"""Which names the files of options such as `--json` may have, and which files they may replace."""

from pathlib import Path

from ckpt_surgery.cli.console import STDOUT
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
    from ckpt_surgery import document_paths

    if recipe is not None:
        document_paths.check_kept(recipe, overwrite)
    if page is not None:
        document_paths.check_kept(page, overwrite, document_paths.is_page)
