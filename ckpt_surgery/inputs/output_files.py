"""Files that commands write besides checkpoints: where they may be written, and how.

They replace nothing that the command reads or writes, and are put into no checkpoint. Recipes replace no file
unless they may overwrite it; saved plans and pages of reports replace files of their own kind.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.shared.config_files import ADAPTER_CONFIG, CONFIG
from ckpt_surgery.inputs.request import Request, is_plan_file
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.packaged import recipe_path
from ckpt_surgery.storage.failures import storage_error, storage_errors
from ckpt_surgery.storage.listing import is_directory
from ckpt_surgery.storage.paths import check_parent, is_stream, lies_in, path_text, same_place
from ckpt_surgery.storage.record_files import RECORD_NAME

HEAD = 1 << 16
"""Bytes at the beginning of a file by which `check_kept` recognizes its kind."""


@dataclass(frozen=True)
class CheckpointPath:
    """A checkpoint that a command reads or writes, and how it is to be read."""

    path: str
    format: str | None = None
    step: int | None = None
    item: str | None = None


def check_documents(
    documents: Sequence[PathLike | None], checkpoints: Sequence[CheckpointPath], files: Sequence[str] = ()
) -> None:
    """Refuse documents that cannot be written, or clash with one another or with a path of the command.

    None stands for a document that was not asked for. `checkpoints` and `files` (recipe, hooks, saved plan)
    are everything else that the command reads or writes. Raises UsageError, and StorageError for no access.
    """
    for document in documents:
        if document is not None and urls.is_url(os.fspath(document)):
            hint = "Name a local file, and copy it to the bucket afterwards."
            raise UsageError(f"{shown(os.fspath(document))}: documents are files of this machine", hint=hint)
    places = [Path(document) for document in documents if document is not None]
    for i, file in enumerate(places):
        _check_document(file, [*places[:i], *map(Path, (*files, *_paths(checkpoints)))])
        for checkpoint in checkpoints:
            if os.path.lexists(file):
                _check_document(file, map(Path, _files(checkpoint)), into=False)


def _check_document(document: Path, others: Iterable[Path], into: bool = True) -> None:
    """Refuse to write a document over another path of the command, or into it.

    The others need not exist; without `into` they are files. A device or a pipe is written to. Raises
    UsageError, and StorageError where the system would refuse.
    """
    with storage_errors(document):
        if "\0" in os.fspath(document):
            raise UsageError(f"{path_text(document)}: no file can be called so", hint="Choose another name.")
        if is_stream(document):
            return
        check_parent(document)
        for other in others:
            if same_place(document, other) or (into and lies_in(document, other)):
                problem = f"a document cannot be written over or into {path_text(other)}"
                raise UsageError(f"{path_text(document)}: {problem}", hint="Name a file elsewhere.")
        if document.is_dir():
            raise UsageError(f"{path_text(document)}: is a directory", hint="Name a file.")
        if document.exists() and not os.access(document, os.W_OK):
            raise StorageError(f"{path_text(document)}: may not be written", hint="Check its permissions.")


def _paths(checkpoints: Sequence[CheckpointPath]) -> Iterator[str]:
    """Paths of checkpoints that no document may replace or be written into, as far as names tell."""
    for checkpoint in checkpoints:
        if urls.is_url(checkpoint.path):
            continue  # no file of this machine is in it
        yield checkpoint.path
        yield f"{checkpoint.path.rstrip(os.sep)}.{RECORD_NAME}"
        if not is_directory(checkpoint.path):
            directory = os.path.dirname(checkpoint.path)
            yield from (os.path.join(directory, name) for name in (CONFIG, ADAPTER_CONFIG))


def _files(checkpoint: CheckpointPath) -> list[str]:
    """Files of a checkpoint, wherever they lie; none if it cannot be opened."""
    for chosen in (checkpoint, CheckpointPath(checkpoint.path)):
        # If it cannot be opened, the command says what is wrong, and writes nothing.
        with contextlib.suppress(SourceError, UsageError):
            source = opening.open_source(chosen.path, chosen.format, chosen.step, chosen.item)
            return [file for file in source.files() if not urls.is_url(file)]
    return []


def named_in(request: Request) -> tuple[list[CheckpointPath], list[str]]:
    """Collect the checkpoints of a plan, also of a saved one, and its other files. Raises UsageError."""
    from ckpt_surgery.planner.document import read_plan_file  # imports what only saved plans need

    recipe = request.recipe
    saved = read_plan_file(recipe) if isinstance(recipe, str) and is_plan_file(recipe) else None
    which = request.src_format, request.step, request.item
    checkpoints = [CheckpointPath(path, *which) for path in request.sources if isinstance(path, str)]
    checkpoints += [CheckpointPath(p) for p in (request.target, request.dst) if isinstance(p, str)]
    files = [] if request.recipe_path is None else [recipe_path(request.recipe_path)]
    files += [] if request.config is None else [request.config]
    if isinstance(recipe, LoadedRecipe) and recipe.recipe.hooks is not None:
        files.append(os.path.join(recipe.directory, recipe.recipe.hooks))
    if saved is not None:
        checkpoints += [CheckpointPath(i.path, i.format, i.step, i.item) for i in saved.inputs]
        checkpoints += [CheckpointPath(path) for path in [saved.saved.request.dst] if path is not None]
        files += (saved.saved.hooks or ())[:1]
    return checkpoints, files


SAVED = rb'\A\s*\{\s*"schema":'
"""Pattern in JSON documents of commands, such as saved plans."""
PAGE = rb"ckpt-surgery</title>"
"""Pattern in pages of reports: the end of their titles."""
_NOTHING = rb"(?!)"


def check_kept(document: PathLike, overwrite: bool, alike: bytes = _NOTHING) -> None:
    """Refuse to replace a file that a person may have written or edited, unless `overwrite`.

    Empty files may be replaced, and those whose first 64 KiB have the pattern. Raises DestinationError.
    """
    place = Path(document)
    with storage_errors(place):
        if overwrite or is_stream(place) or not place.is_file():
            return
        with open(place, "rb") as file:
            head = file.read(HEAD)
    if head and not re.search(alike, head):
        hint = "Name another file, or replace it: `overwrite=True`."
        raise DestinationError(f"{path_text(place)} exists already", hint=hint)


def write_document(path: PathLike, data: bytes) -> None:
    """Write a document in one step, where links lead, or into a device or a pipe. Raises StorageError."""
    place = Path(os.path.realpath(path))
    if is_stream(place):
        with storage_errors(place), open(place, "wb") as stream:
            stream.write(data)
        return
    new = place.with_name(f".ckpt-surgery-{secrets.token_hex(8)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            os.chmod(new, stat.S_IMODE(os.stat(place).st_mode))
        os.replace(new, place)
    except BaseException as error:
        with contextlib.suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            raise storage_error(path_text(place), error) from error
        raise
