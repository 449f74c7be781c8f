"""`explain CODE`."""

import pytest

from ckpt_surgery.core.explanations import EXPLANATIONS
from ckpt_surgery.core.problem_codes import Code
from tests.support.command_line import run


@pytest.mark.parametrize("code", Code)
def test_a_code_is_explained_with_its_example(code: Code) -> None:
    done = run("explain", code, COLUMNS="80")
    explained = EXPLANATIONS[code]
    assert (done.exit_code, done.stderr) == (0, "")
    title, text, example = done.stdout.split("\n\n")
    assert title == f"{code}  {explained.title}"
    assert " ".join(line.strip() for line in text.splitlines()) == explained.text
    assert max(map(len, text.splitlines())) <= 80
    assert [line.removeprefix("    ") for line in example.splitlines()] == explained.example.splitlines()


def test_small_letters_will_do() -> None:
    assert run("explain", "cs010").stdout.startswith("CS010  There is no such field\n")


@pytest.mark.parametrize("text", ["CS999", "10", "params/\x1bw"])
def test_what_is_no_code_is_refused(text: str) -> None:
    done = run("explain", text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: there is no problem with the code `")
    assert "Codes go from CS001 to CS078" in done.stderr
    assert "\x1b" not in done.stderr
