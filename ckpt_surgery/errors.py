"""Errors that the functions of this package raise.

`SurgeryError` is the base class of all. `str(error)` says everything that is wrong and what to do about it,
`error.problems` has each problem with its place and its code, and `error.exit_code` is that of the command
line. Importing this imports nothing else of the package.
"""

__all__ = sorted(name for name in globals() if name[0].isupper())
