"""The words of README, docs, docstrings and messages are spelled as the dictionary has them.

codespell knows what is often misspelled, and reads everything. The dictionary of pyspellchecker knows
English words, and reads prose: what Markdown and docstrings hold besides code. `.ci/words.txt` has the
field's own words.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

from spellchecker import SpellChecker

from tests.test_site import ROOT

READ = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs",
    "ckpt_surgery",
    "recipes",
    "examples",
    ".ci",
)
WORDS = ROOT / ".ci" / "words.txt"
CODE = re.compile(
    r"^( *)```.*?^\1```|``[^`]*``|`[^`]*`|\]\([^)]*\)|https?://\S+|<[^>]*>|\S*[/_=]\S*", re.M | re.S
)
WORD = re.compile(r"(?<![\w\\.-])[^\W\d_]+(?:['’][a-z]+)?(?![\w\\])")


@cache
def known() -> SpellChecker:
    checker = SpellChecker(language="en")
    checker.word_frequency.load_words(own())
    return checker


def own() -> list[str]:
    return WORDS.read_text().split()


def words(text: str) -> Iterator[str]:
    """The plain words of prose: not code, not names such as GiB or SurgeryError, not signs such as DST."""
    for found in WORD.finditer(CODE.sub(" ", text)):
        word = re.sub(r"['’]s$", "", found[0])
        if word.isascii() and not re.search(r"[A-Z]", word[1:]):
            yield word


def misspelled(text: str) -> set[str]:
    return {word for word in words(text) if word.lower() not in known()}


def docstrings(code: str) -> Iterator[str]:
    """Texts that begin a line: of modules, classes and functions, and below fields."""
    for found in re.finditer(r'"""(.*?)"""', code, re.DOTALL):
        if not code[code.rfind("\n", 0, found.start()) + 1 : found.start()].strip(" r"):
            yield found[1]


def prose() -> Iterator[tuple[str, str]]:
    """Every text that is read as English, with the path of its file."""
    for path in [*(ROOT / name for name in READ if name.endswith(".md")), *(ROOT / "docs").rglob("*.md")]:
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in (ROOT / "ckpt_surgery").rglob("*.py"):
        for text in docstrings(path.read_text()):
            yield str(path.relative_to(ROOT)), text


def test_nothing_is_misspelled_as_it_often_is() -> None:
    command = [sys.executable, "-m", "codespell_lib", *READ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_every_word_is_in_the_dictionary_or_in_the_sorted_list() -> None:
    found = {(path, word) for path, text in prose() for word in misspelled(text)}
    assert not found, f"misspelled, or a word for {WORDS.name}: {sorted(found)}"
    assert own() == sorted({word.lower() for word in own()})
