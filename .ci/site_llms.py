"""`llms.txt` and `llms-full.txt` beside the documentation's pages; mkdocs calls the function `on_…`.

`llms.txt` (https://llmstxt.org) lists for programs that read text what the site has: the commands from their
help, the pages with their first sentences, and the fields and functions of recipes from the reference.
`llms-full.txt` holds the help of every command and the text of every page.
"""

import re
from collections.abc import Iterator

import click
from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ckpt_surgery.cli.parameters.command import PROGRAM
from ckpt_surgery.cli.program import cli

REFERENCE = "reference.md"
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
SENTENCE = re.compile(r".*?[.?](?=\s|$)|.*")
NO_PROSE = re.compile(r"#|!|\||```|- |\?\?\?|\[!")
"""Begins a heading, a picture, a table, code, a list or a folded block."""
ROW = re.compile(r"\| (`[^`]+`) \| .* \| (.*) \|")
"""A field of the reference: its name, its values, and its meaning."""


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Add the two files, now that the text of every page is known."""
    pages = list(in_order(files))
    for name, lines in (("llms.txt", overview(pages, config)), ("llms-full.txt", everything(pages))):
        files.append(File.generated(config, name, content="\n".join(lines) + "\n"))
    return env


def in_order(files: Files) -> Iterator[Page]:
    """The pages, as one reads on from the first."""
    page = next((file.page for file in files.documentation_pages() if file.src_uri == "index.md"), None)
    while page is not None:
        yield page
        page = page.next_page


# --- the overview ---------------------------------------------------------------------------------


def overview(pages: list[Page], config: MkDocsConfig) -> Iterator[str]:
    """The lines of `llms.txt`."""
    yield f"# {config.site_name}\n"
    yield f"> {config.site_description}\n"
    yield "All pages as one file: [llms-full.txt](llms-full.txt)\n"
    yield "## Commands\n"
    for ctx in contexts():
        usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
        yield f"- `{usage}`: {ctx.command.get_short_help_str(200)}"
    section = ""
    for page in pages:
        if section_of(page) != section:
            section = section_of(page)
            yield f"\n## {section}\n"
        yield f"- [{page.title}]({page.canonical_url or page.url}): {first_sentence(page.markdown or '')}"
    (reference,) = (page.markdown or "" for page in pages if page.file.src_uri == REFERENCE)
    yield "\n## Fields of recipes\n"
    yield from fields(reference)
    yield "\n## Functions of recipes\n"
    yield from functions(reference)


def contexts() -> Iterator[click.Context]:
    """A context for each command."""
    root = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        yield click.Context(command, info_name=name, parent=root, **cli.context_settings)


def section_of(page: Page) -> str:
    """The heading of the navigation that the page stands below."""
    return str([page, *page.ancestors][-1].title)


def first_sentence(markdown: str) -> str:
    """The first sentence of the first paragraph of prose, without links."""
    blocks = (block.strip() for block in re.split(r"\n\s*\n", markdown))
    prose = next((block for block in blocks if block and not NO_PROSE.match(block)), "")
    sentence = SENTENCE.match(" ".join(LINK.sub(r"\1", prose).split()))
    return re.sub(":$", ".", sentence[0]) if sentence else ""


def fields(reference: str) -> Iterator[str]:
    """The fields of each part of a recipe, with their meanings."""
    text = reference.partition("\n## Fields\n")[2].partition("\n## ")[0]
    for part in text.split("\n### ")[1:]:
        heading = part.partition("\n")[0].lower()
        yield from (f"- {row[1]} of {heading}: {row[2]}" for row in ROW.finditer(part))


def functions(reference: str) -> Iterator[str]:
    """The first paragraph about each function."""
    text = reference.partition("\n## Functions\n")[2].partition("\n## ")[0]
    for part in re.split(r"\n#### \w+\n", text)[1:]:
        yield f"- {part.strip().splitlines()[0]}"


# --- everything -----------------------------------------------------------------------------------


def everything(pages: list[Page]) -> Iterator[str]:
    """The lines of `llms-full.txt`."""
    for page in pages:
        yield f"<!-- {page.canonical_url or page.url} -->\n"
        yield (page.markdown or "").strip() + "\n"
    yield "# The help of the commands\n"
    for ctx in contexts():
        yield f"```text\n{ctx.get_help()}\n```\n"
