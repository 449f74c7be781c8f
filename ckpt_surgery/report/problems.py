"""Explanations of the codes of problems: the sections of docs/problems.md, which the wheel carries."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ckpt_surgery.core.errors import Code
from ckpt_surgery.core.libraries import shipped
from ckpt_surgery.core.version import VERSION

PAGE = "docs/problems.md"
SITE = f"https://ckpt-surgery.github.io/ckpt-surgery/{VERSION.rpartition('.')[0]}/problems.html"
"""The page of this version on the documentation site."""

_HEADING = re.compile(r"^## (CS\d{3}) (.*)\n", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_FENCE = re.compile(r"^```.*\n", re.MULTILINE)


class Paragraph(NamedTuple):
    text: str
    """One line of prose, or the lines of a block of code."""
    is_code: bool


@dataclass(frozen=True)
class Section:
    """The section of the page about one code."""

    code: Code
    title: str
    markdown: str
    """Meaning, example and remedy: paragraphs and blocks of code, without links."""

    @property
    def address(self) -> str:
        """URL of the section on the documentation site."""
        heading = f"{self.code} {self.title}".lower().replace(" ", "-")
        return f"{SITE}#{re.sub(r'[^a-z0-9-]', '', heading)}"

    @property
    def paragraphs(self) -> Iterator[Paragraph]:
        for number, piece in enumerate(_FENCE.split(self.markdown)):
            if number % 2:
                yield Paragraph(piece.rstrip("\n"), is_code=True)
            else:
                prose = (" ".join(text.split()) for text in piece.split("\n\n"))
                yield from (Paragraph(text, is_code=False) for text in prose if text)


@functools.cache
def problem_sections() -> Mapping[Code, Section]:
    """The section of each code, in the order of the page."""
    _, *parts = _HEADING.split(shipped(PAGE).read_text(encoding="utf-8"))
    return {
        Code(code): Section(Code(code), title, _LINK.sub(r"\1", text).lstrip())
        for code, title, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
