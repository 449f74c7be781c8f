"""The API reference is current, and every public thing has its docstring there."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ckpt_surgery
from ckpt_surgery import errors
from tests.test_contributing import PUBLIC

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/api.md").read_text()


def section(heading: str) -> str:
    """What the page says below a heading, up to the next one."""
    return PAGE.partition(f"\n{heading}\n")[2].partition("\n##")[0]


def test_the_page_is_current() -> None:
    command = [sys.executable, "-W", "error", str(ROOT / ".ci/api.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == PAGE, "run `make docs`"


def test_every_public_module_has_a_section() -> None:
    assert set(re.findall(r"^## (ckpt_surgery.*)$", PAGE, re.MULTILINE)) == PUBLIC


ERRORS = [name for name in ckpt_surgery.__all__ if name in errors.__all__]
FUNCTIONS = [name for name in ckpt_surgery.__all__ if inspect.isroutine(getattr(ckpt_surgery, name))]
CLASSES = [n for n in ckpt_surgery.__all__ if inspect.isclass(getattr(ckpt_surgery, n)) and n not in ERRORS]


def test_every_error_is_in_the_table() -> None:
    table = section("### Errors")
    assert re.findall(r"^\| `(\w+)` \| \d \| .*\. \|$", table, re.MULTILINE) == ERRORS


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES, "SurgeryError"])
def test_every_public_name_is_described(name: str) -> None:
    text = section(f"### {name}")
    assert text.startswith("\n```text\n")
    meaning = text.rpartition("```\n")[2]
    assert re.match(r"\n[A-Z].*\.$", meaning, re.MULTILINE), meaning


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("schema", "recipes")])
def test_every_function_says_what_it_raises(name: str) -> None:
    assert "Raises " in section(f"### {name}")


def test_every_class_and_every_field_is_described() -> None:
    assert re.findall(r"^.*\|  \|$", PAGE, re.MULTILINE) == []
    headings = re.findall(r"^### (.*)\n\n```text\n(?:[^`]*)```\n\n(#.*|\|.*)?$", PAGE, re.MULTILINE)
    assert [name for name, following in headings if following] == []
