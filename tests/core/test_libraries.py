"""Optional libraries: what is said where one is missing, or does not load. Files that the wheel carries."""

import importlib
import pickle
import sys
from pathlib import Path

import pytest

from ckpt_surgery.core import libraries
from ckpt_surgery.core.errors import MissingLibraryError, UsageError
from ckpt_surgery.core.libraries import PACKAGES, install_hint, report_missing, shipped

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("library", PACKAGES)
def test_a_missing_library_has_the_command_that_installs_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingLibraryError) as caught, report_missing(library, "this needs it"):
        importlib.import_module(library)
    (problem,) = caught.value.problems
    assert problem.message == "this needs it, which is not installed"
    assert problem.hint == f"Install it: `pip install {PACKAGES[library]}`."


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libcudart.so.12: cannot open shared object file"),
        ModuleNotFoundError("No module named 'scipy'", name="scipy"),
        ModuleNotFoundError("jax requires jaxlib to be installed."),
        RuntimeError("jaxlib version 0.9.0 is newer than and incompatible with jax version 0.8.1"),
    ],
    ids=["shared library", "its own dependency", "without jaxlib", "versions"],
)
def test_a_library_that_does_not_load_says_why(error: Exception) -> None:
    unloadable = pytest.raises(MissingLibraryError, match="cannot be imported")
    with unloadable as caught, report_missing("jax", "this needs jax"):
        raise error
    assert str(error) in str(caught.value)
    assert "not installed" not in str(caught.value)
    assert "`pip install jax`" in str(caught.value)
    with pytest.raises(ValueError, match="seven"), report_missing("jax", "this needs jax"):
        raise ValueError("seven")  # other errors are left alone


def test_it_is_caught_as_what_callers_expect() -> None:
    error = MissingLibraryError("a needs b")
    assert isinstance(error, UsageError)
    assert isinstance(error, ImportError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (MissingLibraryError, "a needs b")


def test_code_of_the_user_gets_a_hint_for_these_libraries_only() -> None:
    assert install_hint(ModuleNotFoundError("x", name="jax.numpy")) == "Install it: `pip install jax`."
    assert install_hint(ModuleNotFoundError("x", name="sklearn")) is None
    assert install_hint(ImportError("x", name="jax")) is None
    assert install_hint(KeyError("jax")) is None


@pytest.mark.parametrize("path", ["recipes", "docs/problems.md"])
def test_files_are_found_in_a_checkout_and_in_an_installed_package(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shipped(path) in {parent / path for parent in (ROOT, Path(libraries.__file__).parents[1])}
    assert shipped(path).exists()
    (tmp_path / "ckpt_surgery" / path).mkdir(parents=True)
    (tmp_path / path).mkdir(parents=True)  # somebody else's, in site-packages
    monkeypatch.setattr(libraries, "__file__", str(tmp_path / "ckpt_surgery" / "core" / "libraries.py"))
    assert shipped(path) == tmp_path / "ckpt_surgery" / path
