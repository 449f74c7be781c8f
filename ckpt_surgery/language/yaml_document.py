"""A strict YAML loader that knows where everything is. JSON is a subset.

Works on parse events, so that nothing is constructed but text, numbers, true, false, null, lists
and mappings. Aliases, anchors, merge keys and tags are refused, and so is a plain scalar that YAML
readers disagree about (`no`, `010`, `1:30`, a date).
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ckpt_surgery.core.errors import Place, Problem, RecipeError, UsageError

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_PROBLEMS = 50
MAX_NUMBER = 40
"""Characters of a number."""

DocumentPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Mark:
    """Where a node of the document is, in character offsets of the text; `stop` is exclusive."""

    start: int
    stop: int
    style: str | None = None
    """Of a scalar: `` (plain), `'`, `"`, `|` or `>`; None for a list or a mapping."""
    value: str = ""
    """A scalar's characters, before they are understood as a number."""


@dataclass(frozen=True)
class Document:
    """A parsed document: plain values, and the place of each."""

    path: str
    """As the user gave it."""
    text: str
    value: Any
    """None, bool, int, float, str, list, or dict with str or int keys."""
    marks: Mapping[DocumentPath, Mark]
    key_marks: Mapping[DocumentPath, Mark]
    """Of the key that leads to each value of a mapping."""
    problems: tuple[Problem, ...] = ()
    """Where there are any, `value` has a guess in place of what was refused, or nothing."""

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", self.text))]

    def place(self, path: DocumentPath, start: int | None = None, end: int | None = None) -> Place:
        """Where a value is, or the characters `start` to `end` of a scalar's value.

        A path that is not in the document (a field that is missing) gives the nearest container.
        """
        found = path
        while found not in self.marks and found:
            found = found[:-1]
        mark = self.marks.get(found, Mark(0, 0))
        if found != path:
            start = end = None
        return self._located(mark, path, start, end)

    def key_place(self, path: DocumentPath, start: int | None = None, end: int | None = None) -> Place:
        """Where the key is that leads to a value, or characters of it."""
        if path not in self.key_marks:
            return self.place(path, start, end)
        return self._located(self.key_marks[path], path, start, end)

    def _located(self, mark: Mark, path: DocumentPath, start: int | None, end: int | None) -> Place:
        first, stop = mark.start, mark.stop
        if mark.style is None:
            stop = first + 1
        elif start is not None:
            offsets = value_offsets(self.text[mark.start : mark.stop], mark.style, mark.value)
            if offsets is not None:
                first = mark.start + offsets[min(start, len(mark.value))]
                stop = mark.start + offsets[min(start + 1 if end is None else end, len(mark.value))]
        return self.at(first, stop, path_text(path))

    def at(self, start: int, stop: int, path: str = "") -> Place:
        """The place of characters `start` to `stop` of the text; the caret stays on the first line."""
        line = bisect_right(self._line_starts, start)
        begin, *following = self._line_starts[line - 1 : line + 1]
        shown = self.text[begin : following[0] if following else None].rstrip("\r\n")
        width = max(1, min(stop - start, len(shown) - (start - begin)))
        return Place(self.path, path, line, start - begin + 1, _on_one_line(shown), width)


def _on_one_line(line: str) -> str:
    """The line with every character that would move the caret or the terminal replaced, one for one."""
    if line.isprintable():
        return line
    return "".join(" " if c == "\t" else c if c.isprintable() else "�" for c in line)


def path_text(path: DocumentPath) -> str:
    """`rules[3].value`, as people write it."""
    text = ""
    for part in path:
        if isinstance(part, str) and part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


# --- offsets inside a scalar ------------------------------------------------------------------

_TOKENS: Mapping[str, re.Pattern[str]] = {
    "'": re.compile(r"''|.", re.DOTALL),
    '"': re.compile(
        r"\\(?:\r\n|[\r\n])[ \t]*"  # an escaped line break stands for nothing
        r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
        r"|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|.",
        re.DOTALL,
    ),
}
_ANY_TOKEN = re.compile(r".", re.DOTALL)
_ESCAPED = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
"""What single letters after a backslash mean (YAML 1.1, section 5.7); others mean themselves."""


def value_offsets(raw: str, style: str, value: str) -> list[int] | None:
    """For each character of a scalar's value, its offset in the raw text, and the end; None if unsure.

    Folding only ever changes white space, so the other characters are matched one by one in order.
    """
    tokens = list(_tokens(raw, style))
    offsets: list[int] = []
    at = 0
    for character in value:
        if not character.isspace():
            at = _next_visible(tokens, at)
            if at == len(tokens) or tokens[at][1] != character:
                return None
        offsets.append(tokens[at][0] if at < len(tokens) else _end(raw, style))
        if at < len(tokens) and character.isspace() == tokens[at][1].isspace():
            at += 1
    return [*offsets, tokens[at][0] if at < len(tokens) else _end(raw, style)]


def _tokens(raw: str, style: str) -> Iterator[tuple[int, str]]:
    """Pieces of the raw text that stand for one character each: offset and character."""
    start, stop = (1, len(raw) - 1) if style in _TOKENS else (0, len(raw))
    if style in ("|", ">"):
        start = raw.find("\n") + 1 or len(raw)  # after the header
    for match in _TOKENS.get(style, _ANY_TOKEN).finditer(raw, start, stop):
        character = _unescaped(match[0]) if style == '"' else match[0][0]
        if character:
            yield match.start(), character


def _unescaped(token: str) -> str:
    """The character that a piece of a double-quoted scalar stands for; nothing for an escaped line break."""
    if token[0] != "\\":
        return token
    if token[1] in "\r\n":
        return ""
    if token[1] in "xuU" and len(token) > 2:
        return _paired(
            "".join(chr(int(digits, 16)) for digits in re.findall(r"\\[xuU]([0-9a-fA-F]+)", token))
        )
    return _ESCAPED.get(token[1], token[1])


def _paired(text: str) -> str:
    """Surrogate pairs, as JSON writes characters beyond U+FFFF, made one character; half a pair is U+FFFD."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _end(raw: str, style: str) -> int:
    return len(raw) - 1 if style in _TOKENS else len(raw)


def _next_visible(tokens: Sequence[tuple[int, str]], at: int) -> int:
    while at < len(tokens) and tokens[at][1].isspace():
        at += 1
    return at


# --- scalars ----------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CONSTANTS: Mapping[str, bool | None] = {"": None, "null": None, "true": True, "false": False}
_DISPUTED: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), "write it in quotes, or true/false"),
    (re.compile(r"true|false|null", re.IGNORECASE), "write it in quotes, or in lower case"),
    (re.compile(r"~"), "write it in quotes, or null"),
    (re.compile(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?"), "write it in quotes, or without leading zeros"),
    (re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)"), "write it in quotes, or in decimal"),
    (
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"),
        "write it in quotes, or as a plain decimal number such as 0.5",
    ),
    (re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE), "write it in quotes"),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "write it in quotes"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"), "write it in quotes"),
)


Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class _Disputed:
    """A plain scalar that is not clear, and what is wrong with it."""

    message: str


def _plain_value(text: str) -> Scalar | _Disputed:
    """What an unquoted scalar means."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if (match := _NUMBER.fullmatch(text)) is not None:
        return _number(text, whole=match[1] is None and match[2] is None)
    for pattern, advice in _DISPUTED:
        if pattern.fullmatch(text):
            return _Disputed(f"`{text[:60]}` means different things to different YAML readers; {advice}")
    return text


def _number(text: str, whole: bool) -> int | float | _Disputed:
    if len(text) > MAX_NUMBER:
        return _Disputed(f"a number of {len(text)} characters is too long; the limit is {MAX_NUMBER}")
    if whole:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else _Disputed(f"{text} is beyond what a float holds")


# --- building the document --------------------------------------------------------------------


@dataclass
class _Builder:
    """Turns parse events into values, marks and problems."""

    path: str
    text: str
    events: Iterator[Any]
    marks: dict[DocumentPath, Mark] = field(default_factory=dict)
    key_marks: dict[DocumentPath, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def document(self) -> Document:
        value = self._root()
        return Document(self.path, self.text, value, self.marks, self.key_marks, tuple(self.problems))

    def report(self, message: str, start: int, stop: int, path: DocumentPath) -> None:
        place = Document(self.path, self.text, None, {}, {}).at(start, stop, path_text(path))
        self.problems.append(Problem(message, place))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Abandoned

    def fatal(self, message: str, event: Any) -> NoReturn:
        self.report(message, event.start_mark.index, event.end_mark.index, ())
        raise _Abandoned

    def _root(self) -> Any:
        value: Any = None
        seen = False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.tags:
                    self.fatal("a %TAG directive is not accepted", event)
                if seen:
                    self.fatal("there is a second document; write one document per file", event)
                seen = True
                value = self._node(next(self.events), ())
        return value

    def _node(self, event: Any, path: DocumentPath) -> Any:
        self._check_properties(event, path)
        self.marks[path] = Mark(event.start_mark.index, event.end_mark.index)
        if isinstance(event, yaml.AliasEvent):
            return None
        if isinstance(event, yaml.ScalarEvent):
            self.marks[path] = _scalar_mark(event)
            return self._scalar(event, path)
        if len(path) >= MAX_DEPTH:
            self.fatal(f"nested deeper than {MAX_DEPTH} levels", event)
        return self._list(path) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(path)

    def _check_properties(self, event: Any, path: DocumentPath) -> None:
        """Aliases, anchors and tags would let one value stand in two places, or be more than plain data."""
        start, stop = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            self.report("an alias (`*name`) is not accepted; write the value again", start, stop, path)
            return
        if event.anchor is not None:
            self.report("an anchor (`&name`) is not accepted", start, start + 1, path)
        if event.tag is not None:
            self.report(f"a tag (`{_shown_tag(event.tag)}`) is not accepted", start, start + 1, path)

    def _scalar(self, event: Any, path: DocumentPath) -> Scalar:
        start, stop = event.start_mark.index, event.end_mark.index
        text = _paired(event.value)
        if "�" in text and "�" not in event.value:
            self.report("an escape gives half of a surrogate pair, which is not text", start, stop, path)
        if event.style is not None:
            return text
        value = _plain_value(text)
        if isinstance(value, _Disputed):
            self.report(value.message, start, stop, path)
            return text
        return value

    def _list(self, path: DocumentPath) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            values.append(self._node(event, (*path, len(values))))
        return values

    def _mapping(self, path: DocumentPath) -> dict[str | int, Any]:
        values: dict[str | int, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, path)
            if key is None or self._repeated(key, event, path, values):
                self._node(next(self.events), (*path, "?"))
            else:
                self.key_marks[*path, key] = _scalar_mark(event)
                values[key] = self._node(next(self.events), (*path, key))
        return values

    def _repeated(
        self, key: str | int, event: Any, path: DocumentPath, values: Mapping[str | int, Any]
    ) -> bool:
        if key not in values:
            return False
        line = self.text.count("\n", 0, self.key_marks[*path, key].start) + 1
        start, stop = event.start_mark.index, event.end_mark.index
        self.report(f"`{key}` is there twice; the first is on line {line}", start, stop, (*path, key))
        return True

    def _key(self, event: Any, path: DocumentPath) -> str | int | None:
        """A mapping's key; None where it cannot be one, which is reported."""
        if isinstance(event, yaml.AliasEvent):
            self.fatal("an alias (`*name`) is not accepted", event)
        if isinstance(event, yaml.CollectionStartEvent):
            self.fatal("a key must be text, not a list or a mapping", event)
        self._check_properties(event, path)
        start, stop = event.start_mark.index, event.end_mark.index
        if event.style is None and event.value == "<<":
            self.report("a merge key (`<<`) is not accepted; write the fields out", start, stop, path)
            return None
        key = self._scalar(event, path)
        if isinstance(key, str) or type(key) is int:
            return key
        self.report(f"the key `{event.value}` must be text; write it in quotes", start, stop, path)
        return None


class _Abandoned(Exception):
    """The problems so far are all that can be said."""


def _scalar_mark(event: Any) -> Mark:
    return Mark(event.start_mark.index, event.end_mark.index, event.style or "", _paired(event.value))


def _shown_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")[:60]


_QUOTED_OR_TAB = re.compile(r'"(?:[^"\\]|\\.)*"|\t', re.DOTALL)


def _without_tabs(text: str) -> str:
    """JSON may be indented with tabs, YAML may not. Offsets stay the same."""
    if "\t" not in text or not text.lstrip().startswith(("{", "[")):
        return text
    return _QUOTED_OR_TAB.sub(lambda match: " " if match[0] == "\t" else match[0], text)


def parse_document(text: str, path: str) -> Document:
    """The document in `text`, with the problems that leave something to look at.

    Raises RecipeError, with all that was found until there, where it is not YAML at all, too large,
    or nested too deeply. A byte order mark is ignored.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise RecipeError(Problem(f"{path} is larger than {MAX_BYTES >> 20} MiB"))
    builder = _Builder(path, text, yaml.parse(_without_tabs(text), Loader=yaml.SafeLoader))
    try:
        return builder.document()
    except _Abandoned:
        raise RecipeError(*builder.problems) from None
    except yaml.YAMLError as error:
        raise RecipeError(*builder.problems, _syntax_problem(error, path, text)) from None


def _syntax_problem(error: yaml.YAMLError, path: str, text: str) -> Problem:
    whole = Document(path, text, None, {}, {})
    if isinstance(error, yaml.reader.ReaderError):
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return Problem(message, whole.at(error.position, error.position + 1))
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        reasons = [part for part in (error.context, error.problem) if part]
        index = min(error.problem_mark.index, len(text))
        return Problem(f"not valid YAML: {', '.join(reasons)}", whole.at(index, index + 1))
    return Problem(f"{path} is not valid YAML")


def read_text(path: str | Path) -> str:
    """The text of a recipe. Raises UsageError where it cannot be read, RecipeError where it is not text."""
    try:
        if Path(path).is_dir():
            raise UsageError(f"{path} is a directory; a recipe is a YAML file")
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no recipe {path}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the recipe {path} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise RecipeError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise RecipeError(f"{path} is not UTF-8 text: byte {error.start} is 0x{byte:02x}") from None


def load_document(path: str | Path) -> Document:
    """Like `parse_document` of a file's text; raises RecipeError where there is any problem."""
    document = parse_document(read_text(path), str(path))
    if document.problems:
        raise RecipeError(*document.problems)
    return document
