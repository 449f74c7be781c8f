"""What shells offer while a command line is being written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import add_completion_class

from ckpt_surgery.cli.commands.completion import LineComplete
from ckpt_surgery.inputs import choices
from tests.support.command_line import run

PROGRAM = [sys.executable, "-W", "error", "-m", "ckpt_surgery"]
add_completion_class(LineComplete)  # as the program does


def asked(instruction: str, **variables: str) -> str:
    done = run(_CKPT_SURGERY_COMPLETE=instruction, **variables)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def completed(line: str) -> list[str]:
    """What bash is told for a line with the cursor at its end: `type,value`."""
    return asked("bash_complete", COMP_WORDS=line, COMP_CWORD="0").split()


@pytest.mark.each
@pytest.mark.parametrize(
    ("shell", "words", "word"),
    [
        ("bash", "ckpt-surgery apply @hf-mo", "0"),
        ("zsh", "ckpt-surgery apply @hf-mo", "2"),
        ("fish", "ckpt-surgery apply", "@hf-mo"),
    ],
)
def test_every_shell_has_a_script_and_hands_over_its_words(shell: str, words: str, word: str) -> None:
    script = asked(f"{shell}_source")
    assert f"_CKPT_SURGERY_COMPLETE={shell}_complete" in script
    done = run("completion", shell)
    assert (done.exit_code, done.stdout) == (0, script.rstrip() + "\n")
    told = asked(f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=word)
    assert "@hf-moe-to-jax" in told
    assert "@hf-qwen3-to-jax" not in told


FILES = ["file,"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ckpt-surgery ap", ["plain,apply"]),
        ("ckpt-surgery com", ["plain,completion", "plain,commit"]),
        ("ckpt-surgery apply --ov", ["plain,--overwrite"]),
        ("ckpt-surgery apply --target a --target b --ov", ["plain,--overwrite"]),  # wrong already
        ("ckpt-surgery apply recipe.yaml ", FILES),
        ("ckpt-surgery apply rec", ["file,rec"]),
        ("ckpt-surgery apply @", [f"plain,{name}" for name, _ in choices.recipes()]),
        ("ckpt-surgery apply @hf-mo", ["plain,@hf-moe-to-jax"]),
        ("ckpt-surgery plan --set a=b @hf-mo", ["plain,@hf-moe-to-jax"]),  # bash ends a word at `=`
        ("ckpt-surgery recipes hf-mo", ["plain,hf-moe-to-jax"]),
        ("ckpt-surgery recipes @hf-mo", ["plain,@hf-moe-to-jax"]),
        ("ckpt-surgery apply nothing @hf-mo", ["file,@hf-mo"]),  # a source
        ("ckpt-surgery apply -e drop:a o", ["file,o"]),
        ("ckpt-surgery plan r.yaml old --target ", FILES),
        ("ckpt-surgery plan r.yaml old --json p", ["file,p"]),
        ("ckpt-surgery plan --link-mode r", ["plain,reflink"]),
        ("ckpt-surgery plan --link-mode=r", ["plain,reflink"]),
        ("ckpt-surgery convert a b --format sa", ["plain,safetensors"]),
        ("ckpt-surgery convert a b --format to", []),  # torch is read only
        ("ckpt-surgery plan r.yaml a --src-format to", ["plain,torch"]),
        ("ckpt-surgery lint r.yaml --format sa", ["plain,sarif"]),
        ("ckpt-surgery plan r.yaml --set a", []),
        ("ckpt-surgery explain cs00", [f"plain,CS00{n}" for n in range(1, 6)]),
        ("ckpt-surgery explain CS010 ", FILES),
        ("ckpt-surgery explain r.yaml cs", ["file,cs"]),
        ("ckpt-surgery explain @lora-merge-", ["plain,@lora-merge-inplace"]),
        ("ckpt-surgery nothing --", ["plain,--version", "plain,--quiet", "plain,--verbose"]),
    ],
)
def test_what_is_offered(line: str, offered: list[str]) -> None:
    found = completed(line)
    assert found[: len(offered)] == offered
    assert len(found) == len(offered) or line.endswith("--")


PAGE = (Path(__file__).parents[3] / "docs" / "shell.md").read_text()
ROWS = re.findall(r"^\| `(ckpt-surgery .*?)` \| `(.*?)` \|$", PAGE, re.MULTILINE)


def test_the_table_of_the_page() -> None:
    assert len(ROWS) == 4
    for line, result in ROWS:
        before, _, _ = line.rpartition(" ")
        assert [f"{before} {one.partition(',')[2]}" for one in completed(line)] == [result]


BASH = """
eval "$SCRIPT"
COMP_LINE='ckpt-surgery apply @hf-mo old'; COMP_POINT=25
COMP_WORDS=(ckpt-surgery apply @ hf-mo old); COMP_CWORD=3
_ckpt_surgery_completion "$PROGRAM" hf-mo @
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_bash_itself_completes_a_packaged_recipe(tmp_path: Path) -> None:
    """With the words that it makes of the line, and the cursor before its end."""
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"SCRIPT": asked("bash_source"), "PROGRAM": str(program)}
    command = ["bash", "--norc", "-c", BASH]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("@hf-moe-to-jax\n", "")
