"""Look up what is installed: libraries that may be missing, and files that the wheel carries beside the code.

The libraries are those of the extras, and jax and Orbax in a slim installation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckpt_surgery.core.errors import MissingLibraryError
from ckpt_surgery.core.text import shown

PACKAGES = {name: name for name in ("distributed", "gguf", "h5py", "jax", "obstore")} | {
    "dask": "distributed",
    "jaxlib": "jax",
    "orbax": "orbax-checkpoint",
}
"""The package to install, by the name that a library is imported by. The extras would install jax too."""


@contextmanager
def report_missing(library: str, need: str) -> Iterator[None]:
    """Import an optional library inside this context: `with report_missing("jax", "`init` needs jax"): …`.

    Raises MissingLibraryError, which begins with `need`, where the library is missing or does not load.
    """
    try:
        yield
    except (ImportError, RuntimeError) as error:  # RuntimeError: versions of jax and jaxlib that do not fit
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == library
        state = "is not installed" if missing else f"cannot be imported: {shown(str(error))}"
        raise MissingLibraryError(f"{need}, which {state}", hint=how_to_install(library)) from error


def install_hint(error: BaseException) -> str | None:
    """The hint for code of the user that failed to import one of these libraries; None for other errors."""
    root = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return how_to_install(root) if root in PACKAGES else None


def how_to_install(library: str) -> str:
    """The hint for a library, by the name that it is imported by."""
    return f"Install it: `pip install {PACKAGES[library]}`."


def shipped(path: str) -> Path:
    """A file or folder that the wheel carries: inside the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / path
    return installed if installed.exists() else package.parent / path
