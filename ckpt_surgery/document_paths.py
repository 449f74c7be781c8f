"""Where the JSON documents of commands may be written."""

from collections.abc import Sequence
from pathlib import Path

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.engine.staging.checks import check_document


def check_documents(documents: Sequence[PathLike | None], paths: Sequence[PathLike | None]) -> None:
    """Refuse documents that would be written over one another, or over or into one of the paths.

    Raises UsageError. None, as a document or a path, stands for one that was not given.
    """
    files = [Path(document) for document in documents if document is not None]
    others = [Path(path) for path in paths if path is not None]
    for i, file in enumerate(files):
        check_document(file, [*others, *files[:i]])
