"""h5py, which reads the structure of files, and its errors as those of this package.

h5py is imported where it is needed, as it is an optional dependency. Everything here is single-threaded:
h5py lets one thread at a time into the library.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ckpt_surgery.core.errors import SourceError, SurgeryError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.hdf5.file_view import FileView
from ckpt_surgery.storage.failures import DAMAGED

LIBRARY_ERRORS = (
    *(OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, SystemError),
    *(OverflowError, MemoryError, NotImplementedError),
)
"""What h5py raises for damaged files, by the kind of error that the library reports."""
MOST_CHARACTERS = 300
"""Length to which messages of the library are cut."""


def import_h5py(path: str) -> Any:
    """Import h5py. Raises MissingLibraryError, which names `path`, where it is not installed."""
    with report_missing("h5py", f"{shown(path)}: HDF5 files need the package h5py"):
        import h5py
    return h5py


@contextmanager
def opened_hdf5(view: FileView) -> Iterator[Any]:
    """An HDF5 file as h5py's `FileID`, open for reading.

    What the library reports within this context is raised as SourceError with the file's path; what failed
    in reading its bytes is raised as it was.
    """
    h5py = import_h5py(view.path)
    try:
        with h5py.File(view, "r") as file:
            yield file.id
    except (SurgeryError, *LIBRARY_ERRORS) as error:
        if view.failure is not None and error is not view.failure:
            raise view.failure from error
        if isinstance(error, SurgeryError):
            raise
        raise SourceError(
            f"{shown(view.path)} cannot be read as an HDF5 file: {library_text(error)}", hint=DAMAGED
        ) from error


def library_text(error: BaseException) -> str:
    """What an error of the library says, in one line."""
    said = str(error.args[0]) if error.args else ""  # the text of a KeyError would be in quotes
    return shown(" ".join(said.split())[:MOST_CHARACTERS]) or type(error).__name__
