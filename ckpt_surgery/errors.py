"""Errors that the functions of this package raise.

`SurgeryError` is the base class of all. `str(error)` says everything that is wrong and what to do about it,
`error.problems` has each problem with its place and its code, and `error.exit_code` is that of the command
line. Importing this imports nothing else of the package.
"""

from ckpt_surgery.core.errors import (
    Code,
    DataError,
    DestinationError,
    FunctionError,
    Interrupted,
    KeyNotFound,
    MissingLibraryError,
    OriginalMissingError,
    OutOfMemoryError,
    Place,
    PlanError,
    Problem,
    RecipeError,
    SourceError,
    SourcesChanged,
    StorageError,
    SurgeryError,
    TransformError,
    UsageError,
    VerificationError,
    WorkersLost,
)

__all__ = [
    "Code",
    "DataError",
    "DestinationError",
    "FunctionError",
    "Interrupted",
    "KeyNotFound",
    "MissingLibraryError",
    "OriginalMissingError",
    "OutOfMemoryError",
    "Place",
    "PlanError",
    "Problem",
    "RecipeError",
    "SourceError",
    "SourcesChanged",
    "StorageError",
    "SurgeryError",
    "TransformError",
    "UsageError",
    "VerificationError",
    "WorkersLost",
]
