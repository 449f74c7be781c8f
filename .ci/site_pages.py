"""Pages of the documentation site besides the files of docs/; mkdocs calls the functions `on_…`.

Files at the root that readers look for become pages, and so do the packaged recipes. Links in Markdown are
paths of the repository, which work where the files are browsed; here they become links to the pages. A link
to a file that is no page is a warning, with which a strict build fails.
"""

import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
WHOLE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files of the repository that are pages as they are, and the names of the pages."""
ELSEWHERE = {"README.md": "index.md", "recipes": "recipes.md", "recipes/examples": "recipes.md#examples"}
"""Pages that stand on the site for other paths of the repository."""

LINK = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)|(?<=\])\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)
"""Code, which stays as it is, or the destination of a link."""
log = logging.getLogger("mkdocs.hooks.site_pages")


# --- links ----------------------------------------------------------------------------------------


def place(path: str) -> str | None:
    """The page, with an anchor where it has one, that shows the file of the repository at `path`."""
    folder, _, name = path.rpartition("/")
    if folder == "docs" or folder.startswith("docs/"):
        return path.removeprefix("docs/")
    if name.endswith(".yaml") and folder in ("recipes", "recipes/examples") and (ROOT / path).exists():
        return f"recipes.md#{anchor(Path(path))}"
    return (WHOLE | ELSEWHERE).get(path)


def link_from(page: str, link: str, origin: str) -> str | None:
    """`link`, as it stands in the file `origin` of the repository, for the page `page` of the site.

    None where it leads to a file that is not on the site.
    """
    path, hash_, fragment = link.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    target = place(path)
    if target is None:
        return None
    folder = posixpath.dirname(page) or "."
    return posixpath.relpath(target, folder) + hash_ + fragment


def with_links(markdown: str, page: str, origin: str) -> str:
    """`markdown` of the file `origin`, with its links as the page `page` needs them."""

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return found[0]
        link = link_from(page, found[2], origin)
        if link is None:
            log.warning("%s: a link to %s, which is not on the site; see `place`", origin, found[2])
        return f"({link or found[2]})"

    return LINK.sub(replaced, markdown)


# --- pages ----------------------------------------------------------------------------------------


def anchor(recipe: Path) -> str:
    return f"example-{recipe.stem}" if recipe.parent.name == "examples" else recipe.stem


def section(recipe: Path) -> Iterator[str]:
    """The section of a packaged recipe: what its first line says, and the whole file, folded."""
    text = recipe.read_text(encoding="utf-8")
    name = recipe.stem if recipe.parent.name == "examples" else f"@{recipe.stem}"
    yield f"### {name} {{ #{anchor(recipe)} }}\n"
    yield text.partition("\n")[0].lstrip("# ") + "\n"
    yield f'??? quote "{recipe.relative_to(ROOT)}"\n'
    yield "    ```yaml"
    yield from (f"    {line}".rstrip() for line in text.splitlines())
    yield "    ```\n"


def recipes() -> Iterator[str]:
    """The page of the packaged recipes."""
    yield "# Packaged recipes\n"
    yield "They come with the package: `ckpt-surgery recipes` lists them, and"
    yield "`ckpt-surgery apply @NAME SRC DST` uses one."
    yield "The comment of each says what it expects, what it writes, and which params it has.\n"
    yield "## For models and everyday tasks\n"
    for recipe in sorted((ROOT / "recipes").glob("*.yaml")):
        yield from section(recipe)
    yield "## Examples\n"
    yield "The examples of Orbax's guide to transformations as recipes.\n"
    for recipe in sorted((ROOT / "recipes" / "examples").glob("*.yaml")):
        yield from section(recipe)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not have."""
    for path, page in WHOLE.items():
        content = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    files.append(File.generated(config, "recipes.md", content="\n".join(recipes())))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    r"""Make `\|` in tables `|`: in cells of code too, where GitHub's Markdown needs the backslash."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links to files of the repository links to pages."""
    name = page.file.src_uri
    if name == "recipes.md":
        return markdown
    origins = {page: path for path, page in WHOLE.items()}
    return with_links(markdown, name, origins.get(name, f"docs/{name}"))
