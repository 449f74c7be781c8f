"""Codes of problems: each is used, and each is written once."""

import re
from pathlib import Path

import ckpt_surgery
from ckpt_surgery.core.errors import Code

PACKAGE = Path(ckpt_surgery.__file__).parent


def test_codes_are_of_one_form_and_in_order() -> None:
    assert all(re.fullmatch(r"CS\d{3}", code) for code in Code)
    assert list(Code) == sorted(set(Code))


def test_every_code_is_used() -> None:
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    used = {name for text in texts for name in re.findall(r"\bCode\.([A-Z_]+)\b", text)}
    assert used == {code.name for code in Code}
