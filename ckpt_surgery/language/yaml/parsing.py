"""A strict YAML loader that records the place of every value, and says which texts need quotes.

JSON is a subset. The loader works on parse events, so that it can construct only text, numbers, true, false,
null, lists and mappings. Aliases, anchors, merge keys and tags are refused, and so are unquoted scalars that
YAML readers disagree about (`no`, `010`, `1:30`, a date).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import yaml

from ckpt_surgery.core.errors import Code, Problem, RecipeError
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.language.yaml.document import DocumentPath, Mark, YamlDocument, paired, path_text

MAX_BYTES = 1 << 20  # Limit on the size of a document in UTF-8
MAX_DEPTH = 20  # Limit on the nesting of lists and mappings
MAX_PROBLEMS = 50  # Number of problems after which parsing stops
MAX_NUMBER = 40  # Limit on the characters of a number

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CONSTANTS: Mapping[str, bool | None] = {"": None, "null": None, "true": True, "false": False}
_DISPUTED: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"yes|no|on|off", re.I), "write it in quotes, or true/false"),
    (re.compile(r"true|false|null", re.I), "write it in quotes, or in lower case"),
    (re.compile(r"~"), "write it in quotes, or null"),
    (re.compile(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?"), "write it in quotes, or without leading zeros"),
    (re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)"), "write it in quotes, or in decimal"),
    (
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"),
        "write it in quotes, or as a plain decimal number such as 0.5",
    ),
    (re.compile(r"[-+]?\.(?:inf|nan)|[0-9]{4}(?:-[0-9]{1,2}){2}(?:[Tt \t].*)?", re.I), "write it in quotes"),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "write it in quotes"),
)


@dataclass
class _Builder:
    """Builds values, marks and problems from parse events."""

    document: YamlDocument  # Without its value and problems
    events: Iterator[Any]
    marks: dict[DocumentPath, Mark]
    key_marks: dict[DocumentPath, Mark]
    problems: list[Problem] = field(default_factory=list)

    def report(
        self,
        message: str,
        event: Any,
        path: DocumentPath,
        code: Code = Code.YAML_FEATURE,
        hint: str | None = None,
        whole: bool = True,
    ) -> None:
        """Note a problem of the text of an event; without `whole`, of its first character."""
        start = event.start_mark.index
        stop = event.end_mark.index if whole else start + 1
        self.problems.append(Problem(message, self.document.at(start, stop, path_text(path)), hint, code))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Abandoned

    def fatal(self, message: str, event: Any) -> NoReturn:
        self.report(message, event, ())
        raise _Abandoned

    def root(self) -> Any:
        """The value of the whole document."""
        value: Any = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.tags:
                    self.fatal("a %TAG directive is not accepted", event)
                if self.marks:
                    self.fatal("there is a second document; write one document per file", event)
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
        if not isinstance(event, yaml.SequenceStartEvent):
            return self._mapping(path)
        values: list[Any] = []
        while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
            values.append(self._node(item, (*path, len(values))))
        return values

    def _check_properties(self, event: Any, path: DocumentPath) -> None:
        """Report aliases, anchors and tags: a document is plain data, with one place for each value."""
        is_alias, tag = isinstance(event, yaml.AliasEvent), getattr(event, "tag", None) or ""
        used = {
            "an alias (`*name`)": is_alias,
            "an anchor (`&name`)": event.anchor is not None and not is_alias,
            f"a tag (`{tag.replace('tag:yaml.org,2002:', '!!')[:60]}`)": tag,
        }
        hint = None
        if is_alias or getattr(event, "style", "") is None:
            text = value_at(self.document.text, event.start_mark.index)
            hint = f"If it is text, put it in single quotes: {quoted(text)}"
        for what in filter(used.get, used):
            message = f"{what} is not accepted; write the value itself"
            self.report(message, event, path, hint=hint, whole=is_alias)

    def _scalar(self, event: Any, path: DocumentPath) -> bool | int | float | str | None:
        text = paired(event.value)
        if "�" in text and "�" not in event.value:
            self.report("an escape gives half of a surrogate pair, which is not text", event, path)
        value, problem = _plain_value(text) if event.style is None else (text, None)
        if problem is not None:
            self.report(problem, event, path, Code.UNCLEAR_VALUE)
        return value

    def _mapping(self, path: DocumentPath) -> dict[str | int, Any]:
        values: dict[str | int, Any] = {}
        end = 0  # of a text that commas have cut
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if event.start_mark.index < end:
                self._skip(event)
                self._skip(next(self.events))
                continue
            key = self._key(event, path)
            if key in values:
                line = self.document.line(self.key_marks[*path, key].start)
                message = f"`{key}` appears twice; the first is on line {line}"
                self.report(message, event, (*path, key), Code.REPEATED_FIELD)
            if key is None or key in values:
                self._node(next(self.events), (*path, "?"))
                continue
            self.key_marks[*path, key] = _scalar_mark(event)
            values[key] = self._node(value := next(self.events), (*path, key))
            if (text := self._whole_text(value)) is not None:
                values[key], start = text, value.start_mark.index
                end = start + len(text)
                self.marks[*path, key] = Mark(start, end, "", text)
                message = "this text needs quotes: inside braces, a comma without quotes ends it"
                self.report(message, value, (), Code.YAML, f"Put it in single quotes: {quoted(text)}")
        return values

    def _whole_text(self, event: Any) -> str | None:
        """The text inside braces that a comma within its parentheses has cut; None where none has."""
        if getattr(event, "style", "") is None and event.value.count("(") > event.value.count(")"):
            text = value_at(self.document.text, event.start_mark.index)
            return text if text.startswith(f"{event.value},") else None
        return None

    def _skip(self, event: Any) -> None:
        """Leave out the node that begins with an event."""
        depth = 0
        while depth := depth + _DEPTH.get(type(event), 0):
            event = next(self.events)

    def _key(self, event: Any, path: DocumentPath) -> str | int | None:
        """The key of a mapping's entry. None for a value that cannot be a key, which is reported."""
        if isinstance(event, yaml.AliasEvent | yaml.CollectionStartEvent):
            self.fatal("a key must be text, not a list, a mapping or an alias", event)
        self._check_properties(event, path)
        if event.style is None and event.value == "<<":
            self.report("a merge key (`<<`) is not accepted; write the fields out", event, path)
            return None
        key = self._scalar(event, path)
        if isinstance(key, str) or type(key) is int:
            return key
        message = f"the key `{event.value}` must be text; write it in quotes"
        self.report(message, event, path, Code.UNCLEAR_VALUE)
        return None


_DEPTH: Mapping[type, int] = {
    **dict.fromkeys((yaml.SequenceStartEvent, yaml.MappingStartEvent), 1),
    **dict.fromkeys((yaml.SequenceEndEvent, yaml.MappingEndEvent), -1),
}
"""Change in the depth of nesting by each event of YAML's parser."""


class _Abandoned(Exception):
    """Parsing stops with the problems found so far."""


def _scalar_mark(event: Any) -> Mark:
    return Mark(event.start_mark.index, event.end_mark.index, event.style or "", paired(event.value))


def parse_document(text: str, path: str, rules: Mapping[DocumentPath, str] | None = None) -> YamlDocument:
    """The document in `text`. Problems after which parsing can go on are in its `problems`.

    `rules`: see `YamlDocument`; with them problems have no places. Raises RecipeError, with all problems
    found so far, if the text is not YAML, too large or nested too deeply. A byte order mark is ignored.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise RecipeError(f"{path} is larger than {MAX_BYTES >> 20} MiB", code=Code.UNREADABLE)
    untabbed = text
    if "\t" in text and text.lstrip().startswith(("{", "[")):  # JSON; YAML cannot be indented with tabs
        untabbed = re.sub(r'("(?:[^"\\]|\\.)*")|\t', lambda match: match[1] or " ", text, flags=re.DOTALL)
    marks: dict[DocumentPath, Mark] = {}
    key_marks: dict[DocumentPath, Mark] = {}
    document = YamlDocument(path, text, None, marks, key_marks, rules=rules)
    builder = _Builder(document, yaml.parse(untabbed, Loader=yaml.SafeLoader), marks, key_marks)
    value, failed = None, True
    try:
        with suppress(_Abandoned):
            value, failed = builder.root(), False
    except yaml.YAMLError as error:
        builder.problems.append(syntax_problem(error, document))
    problems = builder.problems
    if rules is not None:
        problems = [replace(problem, place=None) for problem in problems]
    if failed:
        raise RecipeError(*problems, code=Code.YAML)
    return replace(document, value=value, problems=tuple(problems))


def _plain_value(text: str) -> tuple[bool | int | float | str | None, str | None]:
    """The value of an unquoted scalar, and the problem with one that readers disagree about."""
    if text in _CONSTANTS:
        return _CONSTANTS[text], None
    if (match := _NUMBER.fullmatch(text)) is not None:
        if len(text) > MAX_NUMBER:
            return text, f"a number of {len(text)} characters is too long; the limit is {MAX_NUMBER}"
        if match[1] is None and match[2] is None:
            return int(text), None
        if not math.isfinite(float(text)):
            return text, f"{text} is beyond what a float holds"
        return float(text), None
    for pattern, advice in _DISPUTED:
        if pattern.fullmatch(text):
            return text, f"`{text[:60]}` means different things to different YAML readers; {advice}"
    return text, None


def yaml_word(value: Any) -> str:
    """Describe a value of a document in the words of YAML. Lists of numbers are shown."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list) and not all(type(item) in (int, float) for item in value):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return abridged(value)


_VALUE = re.compile(
    r"""(?:^[ \t]*(?:-[ \t]+)*|[{,][ \t]*)(?P<key>[\w.${}\\/-]+):[ \t]+(?=[^\s'"])"""
    r"""|^[ \t]*(?:-[ \t]+)+(?=[^\s'"])"""
)
"""The part of a line before a value without quotes: up to a key, or the dash of a list."""
_FLOW_END = re.compile(r"(?=,[ \t]*[\w.-]+:[ \t]|[ \t]*\}[ \t\]},]*$)")
"""The end of a value inside braces: before the next key, or the brace that closes the line."""
_PATTERNS = frozenset({"match", "fill"})
"""Fields that are texts always; a value of other fields can be a list or a mapping."""
_SIGNS = re.compile(r"[\[\]{},*&!%@`|>?#:-]")
"""Characters that have a meaning in YAML at the beginning of a value, or inside braces."""


def quoted(text: str) -> str:
    """The text in single quotes, as YAML has it."""
    return "'" + text.replace("'", "''") + "'"


def unquoted_at(text: str, index: int) -> tuple[int, str] | None:
    """Find the text that needs quotes, and its offset, near that of an error of YAML's parser.

    None unless quotes let the parser read on beyond that text.
    """
    for start, value, key in _values(text, index):
        stop = start + len(value)
        if start <= index <= stop and _is_text(value, key):
            error = _first_error(f"{text[:start]}{quoted(value)}{text[stop:]}")
            if error is None or error > start + len(quoted(value)):
                return start, value
    return None


def value_at(text: str, start: int) -> str:
    """The text without quotes that begins here, up to the end of its line or of its entry inside braces."""
    found = (value for offset, value, _ in _values(text, start) if offset == start)
    return next(found, text[start:].partition("\n")[0])


def _values(text: str, index: int) -> Iterator[tuple[int, str, str | None]]:
    """Offset, text and key of each value without quotes on the line of a character, the last one first."""
    begin = text.rfind("\n", 0, index) + 1
    line = re.sub(r"[ \t]+#.*|[ \t]+$", "", text[begin : (text + "\n").index("\n", index)])
    for start in reversed(list(_VALUE.finditer(line))):
        rest = line[start.end() :]
        ends = [end.start() for end in _FLOW_END.finditer(rest)] if "{" in line[: start.end()] else []
        value = next((rest[:end] for end in ends if _balanced(rest[:end])), rest)
        if value:
            yield begin + start.end(), value, start["key"]


def _is_text(value: str, key: str | None) -> bool:
    """Whether a value is meant as text: a list or a mapping ends with its bracket."""
    if not _SIGNS.search(value) or not _balanced(value) or ": " in value:
        return False
    if value[0] not in "[{" or key in _PATTERNS:
        return True
    closed = value.find("]" if value[0] == "[" else "}")
    return 0 < closed < len(value) - 1 and value[closed + 1] not in " ,]}"


def _balanced(value: str) -> bool:
    return all(value.count(opening) == value.count(closing) for opening, closing in ("[]", "{}"))


def _first_error(text: str) -> int | None:
    """Offset of the first error of a document; None where it is YAML."""
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return 0 if mark is None else int(mark.index)
    return None


def syntax_problem(error: yaml.YAMLError, document: YamlDocument) -> Problem:
    """The problem of a text that is not YAML, at the place where a person has to look."""
    text = document.text
    if isinstance(error, yaml.reader.ReaderError):
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return Problem(message, document.at(error.position, error.position + 1))
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(f"{document.path} is not valid YAML")
    index = min(error.problem_mark.index, len(text))
    message, start, hint = _explained(error, text, index)
    return Problem(message, document.at(start, start + 1), hint)


def _explained(error: yaml.MarkedYAMLError, text: str, index: int) -> tuple[str, int, str | None]:
    """Message, index of the character that it is about, and hint."""
    problem, opening = error.problem or "", error.context_mark
    if problem.startswith("found unknown escape character"):
        sign = shown(text[index : index + 1])
        message = f"in double quotes a backslash begins an escape, and `\\{sign}` is none"
        return message, max(index - 1, 0), "Put regular expressions in single quotes."
    if problem.startswith("found character '\\t'"):
        return "a tab cannot indent a line", index, "Indent with spaces."
    if problem == "found unexpected end of stream" and opening is not None:
        return "the quote that opens here is never closed", opening.index, None
    if (late := _closed_late(text, index)) is not None:
        start, line = late
        message = f"the quote that opens here is closed on line {line} only, by one that looks like another's"
        return message, start, "Close it on its own line."
    if (unquoted := unquoted_at(text, index)) is not None:
        start, value = unquoted
        message = "this text needs quotes: it has a sign with a meaning of its own in YAML"
        return message, start, f"Put it in single quotes: {quoted(value)}"
    if problem == "mapping values are not allowed here":
        hint = "Put the whole text in single quotes; or, if it is a field, check how its line is indented."
        return "`: ` is not allowed inside a text without quotes", index, hint
    return f"not valid YAML: {', '.join(part for part in (error.context, problem) if part)}", index, None


def _closed_late(text: str, index: int) -> tuple[int, int] | None:
    """Start of a quoted text of several lines that ends just before the index, and its last line."""
    with suppress(yaml.YAMLError):  # what comes after it is wrong, which is why somebody asks
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            start, end = token.start_mark, token.end_mark
            is_quoted = isinstance(token, yaml.ScalarToken) and token.style in ("'", '"')
            is_before = end.index <= index and not text[end.index : index].strip()
            if is_quoted and is_before and start.line < end.line:
                return start.index, end.line + 1
    return None
