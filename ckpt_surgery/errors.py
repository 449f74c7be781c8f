"""Errors that the functions of this package raise.

`SurgeryError` is the base class of all. `str(error)` says everything that is wrong and what to do about it,
`error.problems` has each problem with its place and its code, and `error.exit_code` is that of the command
line. Importing this imports nothing else of the package.
"""

from ckpt_surgery.core.errors import Code as Code
from ckpt_surgery.core.errors import DataError as DataError
from ckpt_surgery.core.errors import DestinationError as DestinationError
from ckpt_surgery.core.errors import FunctionError as FunctionError
from ckpt_surgery.core.errors import Interrupted as Interrupted
from ckpt_surgery.core.errors import KeyNotFound as KeyNotFound
from ckpt_surgery.core.errors import MissingLibraryError as MissingLibraryError
from ckpt_surgery.core.errors import OriginalMissingError as OriginalMissingError
from ckpt_surgery.core.errors import OutOfMemoryError as OutOfMemoryError
from ckpt_surgery.core.errors import Place as Place
from ckpt_surgery.core.errors import PlanError as PlanError
from ckpt_surgery.core.errors import Problem as Problem
from ckpt_surgery.core.errors import RecipeError as RecipeError
from ckpt_surgery.core.errors import SourceError as SourceError
from ckpt_surgery.core.errors import SourcesChanged as SourcesChanged
from ckpt_surgery.core.errors import StorageError as StorageError
from ckpt_surgery.core.errors import SurgeryError as SurgeryError
from ckpt_surgery.core.errors import TransformError as TransformError
from ckpt_surgery.core.errors import UsageError as UsageError
from ckpt_surgery.core.errors import VerificationError as VerificationError
from ckpt_surgery.core.errors import WorkersLost as WorkersLost

__all__ = sorted(name for name in globals() if name[0].isupper())
