"""What type checkers say of a program that uses the package: it has types, and mistakes are refused.

`consumer.py` is that program. Its mistakes have comments that the checkers have to need.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ckpt_surgery

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CONSUMER = HERE / "consumer.py"


def output_of(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_the_program_uses_every_public_name() -> None:
    nodes = ast.walk(ast.parse(CONSUMER.read_text()))
    used = {n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "cs"}
    assert used >= set(ckpt_surgery.__all__), "add calls of new functions to the program"


@pytest.mark.slow("checks types of a program")
def test_mypy_accepts_it() -> None:
    assert output_of("mypy", str(CONSUMER)) == "Success: no issues found in 1 source file\n"


@pytest.mark.slow("checks types of a program")
def test_pyright_accepts_it() -> None:
    told = output_of("pyright", "--project", str(HERE), "--pythonpath", sys.executable)
    assert told == "0 errors, 0 warnings, 0 informations\n"


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(ckpt_surgery.__file__).parent / "py.typed").is_file()
