"""A strict YAML loader that records the place of every value. JSON is a subset.

It works on parse events, so that it can construct only text, numbers, true, false, null, lists and mappings.
Aliases, anchors, merge keys and tags are refused, and so are unquoted scalars that YAML readers disagree
about (`no`, `010`, `1:30`, a date).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from ckpt_surgery.core.errors import Problem, RecipeError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import abridged
from ckpt_surgery.language.yaml.document import DocumentPath, Mark, YamlDocument, paired, path_text
from ckpt_surgery.language.yaml.quoting import quoted, syntax_problem, value_at

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

    path: str
    text: str
    events: Iterator[Any]
    marks: dict[DocumentPath, Mark] = field(default_factory=dict)
    key_marks: dict[DocumentPath, Mark] = field(default_factory=dict)
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
        place = YamlDocument(self.path, self.text, None, {}, {}).at(start, stop, path_text(path))
        self.problems.append(Problem(message, place, hint, code))
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
            text = value_at(self.text, event.start_mark.index)
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
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, path)
            if key in values:
                line = self.text.count("\n", 0, self.key_marks[*path, key].start) + 1
                message = f"`{key}` appears twice; the first is on line {line}"
                self.report(message, event, (*path, key), Code.REPEATED_FIELD)
            if key is None or key in values:
                self._node(next(self.events), (*path, "?"))
            else:
                self.key_marks[*path, key] = _scalar_mark(event)
                values[key] = self._node(next(self.events), (*path, key))
        return values

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


class _Abandoned(Exception):
    """Parsing stops with the problems found so far."""


def _scalar_mark(event: Any) -> Mark:
    return Mark(event.start_mark.index, event.end_mark.index, event.style or "", paired(event.value))


def _without_tabs(text: str) -> str:
    """The text with spaces for tabs outside of quotes, if it is JSON: YAML cannot be indented with tabs."""
    if "\t" not in text or not text.lstrip().startswith(("{", "[")):
        return text
    return re.sub(r'("(?:[^"\\]|\\.)*")|\t', lambda match: match[1] or " ", text, flags=re.DOTALL)


def parse_document(text: str, path: str) -> YamlDocument:
    """The document in `text`. Problems after which parsing can go on are in its `problems`.

    Raises RecipeError, with all problems found so far, if the text is not YAML, too large or nested too
    deeply. A byte order mark is ignored.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise RecipeError(f"{path} is larger than {MAX_BYTES >> 20} MiB", code=Code.UNREADABLE)
    builder = _Builder(path, text, yaml.parse(_without_tabs(text), Loader=yaml.SafeLoader))
    try:
        value = builder.root()
        return YamlDocument(path, text, value, builder.marks, builder.key_marks, tuple(builder.problems))
    except _Abandoned:
        raise RecipeError(*builder.problems, code=Code.YAML) from None
    except yaml.YAMLError as error:
        raise RecipeError(*builder.problems, syntax_problem(error, path, text), code=Code.YAML) from None


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
