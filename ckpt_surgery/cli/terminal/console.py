"""Print to the terminal. Text from recipes and checkpoints is escaped, and never interpreted as markup."""

import functools
import gc
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from ckpt_surgery.cli.terminal.streams import Stream
from ckpt_surgery.core.errors import Problem, StorageError
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Literal, ParamSpec

    from rich.console import Console
    from rich.text import Text

    from ckpt_surgery.core.documents import Document
    from ckpt_surgery.core.progress import Report

    P = ParamSpec("P")

Part: TypeAlias = "str | Text | tuple[str, str]"
Line: TypeAlias = "str | Text | tuple[Part, ...]"
"""A line to print: text, or parts of it, of which pairs have a style."""
STDOUT = "-"
PUBLISHED = "published"
"""Name of the destination in the context's `meta`, from the moment when it is published."""

_ARGUMENT = re.compile(r"`(\w+)=([^`]+)`")
_PARAM = re.compile(r'\{"(\w+)": "?([^"]+)"?\}')


@dataclass(frozen=True)
class Settings:
    """The global options."""

    quiet: bool = False
    verbose: int = 0
    no_color: bool = False


@dataclass(frozen=True)
class Terminal:
    """The two consoles for text that people read."""

    text: "Console"
    """Diff, tables, summary: stdout, or stderr where stdout is for JSON. Silent with `--quiet`."""
    notes: "Console"
    """Progress and warnings: stderr."""
    settings: Settings
    json_to: str | None = None
    """Target of the JSON document: a file, or `-` for stdout; None if none is asked for."""

    def show(self, lines: "Iterable[Line]") -> None:
        """Print lines of any length. Only the terminal wraps them, so that long keys can be copied."""
        _print(self.text, map(_text_of, lines))

    def wrapped(self, lines: "Iterable[Line]") -> None:
        """Print sentences, wrapped at words to the width of the terminal."""
        self.text.print(*map(_text_of, lines), sep="\n")

    def warn(self, lines: "Iterable[Line]") -> None:
        """Print sentences, even with `--quiet`: wrapped at words where the width is that of a terminal.

        Elsewhere, as in the logs of a job, each is on a line, however long.
        """
        console = self.notes if self.settings.quiet else self.text
        texts = [_text_of(line) for line in lines]
        if console.is_terminal or "COLUMNS" in os.environ:
            texts = [part for text in texts for part in _wrapped(text, console.width)]
        _print(console, texts)

    def warn_of(self, warnings: Iterable[str]) -> None:
        """Print warnings, each after `Warning: `."""
        self.warn((("Warning: ", "bold yellow"), shown(warning)) for warning in warnings)

    def write(self, make: "Callable[P, Document]", *args: "P.args", **kwargs: "P.kwargs") -> None:
        """Write the JSON document that `make` returns, if one is asked for."""
        if self.json_to is not None:
            write_document(make(*args, **kwargs), self.json_to)

    def reading(self, wanted: bool = True) -> "AbstractContextManager[Report | Literal[False]]":
        """Like `progress`, for a command without a plan that reads arrays, if that is wanted."""
        if wanted:
            reuse_memory()
            enable_gc()
        return self.progress(wanted)

    def progress(self, wanted: bool = True) -> "AbstractContextManager[Report | Literal[False]]":
        """A function to call with the progress so far; False with `--quiet`, or if not wanted."""
        from ckpt_surgery.cli.terminal.progress import reporting

        return reporting(self.notes, self.settings.quiet or not wanted)


def _text_of(line: "Line") -> "Text":
    if not isinstance(line, str | tuple):
        return line
    from rich.text import Text

    return Text(line) if isinstance(line, str) else Text.assemble(*line)


def _wrapped(line: "Text", width: int) -> Iterable["Text"]:
    """A sentence, wrapped at words and indented as it is. Lines of a recipe, and carets, stay as they are."""
    from ckpt_surgery.cli.terminal.columns import flowing

    indent = len(line) - len(line.plain.lstrip(" "))
    if len(line) <= width or indent >= len(_MARGIN) or line.style:
        return [line]
    first, *words = line[indent:].split(" ")
    return flowing([line[:indent] + first, *words], " ", width, indent or len(_MARGIN))


def _print(console: "Console", lines: Iterable["Text"]) -> None:
    if listed := list(lines):
        console.print(*listed, sep="\n", soft_wrap=True)  # four times as fast as one call per line


def reuse_memory() -> None:
    """Let the allocator keep freed blocks. To be called before the first thread starts; glibc only.

    Otherwise every block of a few MiB comes from the system, which clears it page by page: a third of the
    time of a cast (64 MiB blocks, glibc 2.36).
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # its parameters are numbers of <malloc.h>
        mallopt(-8, 1)  # M_ARENA_MAX
        mallopt(-3, 128 << 20)  # M_MMAP_THRESHOLD: larger blocks return to the system at once
        mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD: so many bytes of freed blocks are kept


def enable_gc() -> None:
    """Turn garbage collection on, so that arrays in reference cycles are freed before the program ends.

    What planning allocated, which may be millions of small values, is ignored for good.
    """
    gc.freeze()
    gc.enable()


def open_terminal(settings: Settings, json_to: str | None = None, *, taken: bool = False) -> Terminal:
    """The consoles of a command. Raises StorageError if stdout is `taken` by a document, and closed."""
    taken = taken or json_to == STDOUT
    if taken and isinstance(sys.stdout, Stream) and sys.stdout.absent:
        message = "standard output is closed, so the JSON document cannot be written"
        raise StorageError(message, hint="Name a file for it.")
    text = _console(sys.stderr if taken else sys.stdout, settings, settings.quiet)
    return Terminal(text, _console(sys.stderr, settings, False), settings, json_to)


def _console(stream: TextIO, settings: Settings, quiet: bool) -> "Console":
    from rich.console import Console

    make = functools.partial(Console, file=stream, quiet=quiet, highlight=False, markup=False, emoji=False)
    console = make()
    return make(color_system=None) if settings.no_color or console.no_color else console


_MARGIN = "    "
"""Before a line of a recipe."""


def print_errors(messages: Sequence[str], settings: Settings) -> None:
    """Print errors on stderr, each after `Error: `, and their number; wrapped at words on a terminal."""
    from rich.text import Text

    console = _console(sys.stderr, settings, False)
    texts = []
    for message in messages:
        head, *lines = message.split("\n")
        texts += [Text.assemble(("Error: ", "bold red"), head), *styled_lines(lines, console), Text()]
    if console.is_terminal:
        texts = [part for text in texts for part in _wrapped(text, console.width)]
    _print(console, [*texts, Text(f"{len(messages)} errors")] if len(messages) > 1 else texts[:-1])


def cut_lines(lines: Sequence[str], width: int) -> list[str]:
    """Cut the lines of recipes to the width of the terminal, so that carets stay below their characters."""
    cut = list(lines)
    for number, caret in enumerate(lines):
        if not number or "^" not in caret or caret.strip(" ^"):
            continue
        skipped = 0 if len(caret) <= width else max(0, caret.index("^") - 2 * len(_MARGIN))
        for n in (number - 1, number):
            cut[n] = f"{_MARGIN}{lines[n][len(_MARGIN) + skipped :]}"[:width]
    return cut


def styled_lines(lines: Sequence[str], console: "Console") -> list["Text"]:
    """The lines of a problem, cut where the console is a terminal; carets below what is wrong are red."""
    from rich.text import Text

    cut = cut_lines(lines, console.width) if console.is_terminal else lines
    return [Text(line, "bold red" if line.strip() and not line.strip(" ^") else "") for line in cut]


def as_options(hint: str) -> str:
    """The library's hint with options in place of arguments: `step=10` becomes `--step 10`."""
    return _ARGUMENT.sub(lambda match: f"`{_option(match[1], match[2])}`", hint)


def _option(argument: str, value: str) -> str:
    from ckpt_surgery.inputs.options import ARGUMENTS  # imports NumPy; few hints name an argument

    if argument not in ARGUMENTS:
        return f"{argument}={value}"
    name = f"--{argument.replace('_', '-')}"
    yaml = {"True": "true", "False": "false"}
    text = _PARAM.sub(lambda match: f"{match[1]}={yaml.get(match[2], match[2])}", value).strip('"')
    return name if value == "True" else f"{name} {text}"


def problem_text(problem: Problem) -> str:
    """A problem as it is printed, with its code. No text of a recipe can end a line or move the cursor."""
    hint = None if problem.hint is None else shown(as_options(problem.hint))
    place = problem.place
    if place is None:
        return str(Problem(shown(problem.message), None, hint))
    # Escaped, with the caret below the same characters.
    start = place.column - 1
    before, meant = (shown(text) for text in (place.text[:start], place.text[start : start + place.width]))
    file, path, line = (shown(text) for text in (place.file, place.path, place.text))
    name = None if place.name is None else shown(place.name)
    column, width = len(before) + 1, len(meant)
    place = replace(place, file=file, path=path, text=line, column=column, width=width, name=name)
    text = str(Problem(shown(problem.message), place, hint))
    if problem.code is None:
        return text
    where, rest = text.split("\n", 1)
    return f"{where}  {problem.code}\n{rest}"


def problem_texts(problems: Sequence[Problem]) -> list[str]:
    """Errors as they are printed. What is about no place of a recipe belongs to the error before it."""
    texts: list[str] = []
    for problem in problems:
        if texts and problem.place is None:
            texts[-1] += f"\n\n{problem_text(problem)}"
        else:
            texts.append(problem_text(problem))
    return texts


def write_document(document: "Mapping[str, Any] | Document", target: str) -> None:
    """One JSON document, to stdout (`-`) or to a file, which is replaced in one step. Raises StorageError."""
    from ckpt_surgery.core.documents import json_text

    text = json_text(document)
    if target == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from ckpt_surgery.inputs import output_files

    output_files.write_document(target, text.encode("ascii"))
