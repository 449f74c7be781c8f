"""Texts for the copy buttons of the documentation site; mkdocs calls the function `on_…`.

A block of `console` shows commands after a `$`, and what they print. Its button copies the commands alone.
"""

import re
from collections.abc import Iterator
from html import escape, unescape

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PROMPT = "$ "
CONSOLE = re.compile(r'(<div class="language-console[^>]*)>(?=(.*?)</div>)', re.DOTALL)
"""The start of a block, and what is in the block."""


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give each block the attribute that the theme's buttons look for."""
    return CONSOLE.sub(with_commands, html)


def with_commands(block: re.Match[str]) -> str:
    text = unescape(re.sub(r"<[^>]*>", "", block[2]))
    lines = "\n".join(commands(text))
    return f'{block[1]} data-copy="{escape(lines)}">'


def commands(text: str) -> Iterator[str]:
    """The commands of a console, without prompts. A line that ends in a backslash goes on in the next one."""
    continues = False
    for line in text.splitlines():
        if continues or line.startswith(PROMPT):
            yield line if continues else line.removeprefix(PROMPT)
            continues = line.endswith("\\")
