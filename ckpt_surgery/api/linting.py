"""`lint`: find problems of recipes without a checkpoint, and mend those that have a single remedy.

A remedy is tried on the text, and taken only where lint then finds neither the mistake nor a new one. Where
two remedies would do, none is taken. Imports nothing of planning.
"""

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import Code, Problem, RecipeError, UsageError
from ckpt_surgery.core.text import brief, shown
from ckpt_surgery.inputs.request import format_findings, read_recipe
from ckpt_surgery.language.checks.forgotten_mirrors import forgotten_mirrors
from ckpt_surgery.language.checks.recipe import unused_lets
from ckpt_surgery.language.expressions.naming import function_names
from ckpt_surgery.language.files import read_text
from ckpt_surgery.language.loading import located, parse_recipe
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.yaml.parsing import quoted


@dataclass(frozen=True)
class CheckedRecipe:
    """Problems and warnings of a recipe that was checked without a checkpoint."""

    path: str
    """Its path, as the caller gave it."""
    problems: tuple[Problem, ...] = ()
    """Reasons why it cannot be used."""
    warnings: tuple[Problem, ...] = ()
    """Possible mistakes in a recipe without problems."""

    __repr__ = brief


def lint(recipes: PathLike | Iterable[PathLike]) -> list[tuple[str, tuple[Problem, ...]]]:
    """Check recipes without a checkpoint: return each path with all problems, a missing file included.

    Raises nothing for a recipe that is wrong, so that all recipes are checked.
    """
    paths = [recipes] if isinstance(recipes, str | os.PathLike) else recipes
    return [(checked.path, checked.problems) for checked in map(check_recipe, paths)]


def check_recipe(path: PathLike) -> CheckedRecipe:
    """Check a recipe without a checkpoint. Raises nothing for a recipe that is wrong."""
    path = os.fspath(path)
    try:
        loaded = read_recipe(path)
    except (RecipeError, UsageError) as error:
        return CheckedRecipe(path, problems=error.problems)
    findings = (*forgotten_mirrors(loaded.recipe), *unused_lets(loaded.recipe))
    return CheckedRecipe(path, warnings=tuple(located(loaded.document, finding) for finding in findings))


MOST_REMEDIES = 1000
"""Maximum number of remedies in one recipe."""
CLOSE, APART = 0.75, 0.1
"""Minimum likeness (0 to 1) of a misspelt name to a known one, and minimum lead over all other names."""
SHORTEST = 3
"""Minimum length of a misspelt name: shorter names resemble too many."""
SYNTAX = frozenset({Code.YAML, Code.YAML_FEATURE})
"""Mistakes that keep lint from seeing any others."""
BROUGHT = frozenset({Code.REPEATED_FIELD, Code.FIELDS_DISAGREE})
"""Mistakes that lint reports only once the name of a field is mended."""

_GUESS = re.compile(r"; did you mean `(\w+)`\?$")
_TEXT_FIELD = re.compile(
    r"^(?P<before>[ \t]*(?:- +)*(?:match|to|value|when|by|add):[ \t]+)(?P<value>[^\s'\"#].*)$"
)
"""A line whose field takes text, with a value that is not in quotes."""
_TAIL = re.compile(r"[ \t]+#.*$|[ \t]+$")
"""A comment, or spaces, at the end of a line."""
_EXPRESSION_FIELD = re.compile(r"^([ \t]*(?:- +)*(?:value|when|by):[ \t]+)(.*)$")
_DOUBLE = re.compile(r'"([^"]*)"')
_YAML_ESCAPE = re.compile(r'\\[0abtnvfre "/\\N_LPxuU]|\\$')
_BOOLEAN = {"yes": "true", "on": "true", "no": "false", "off": "false", "y": "true", "n": "false"}
_GROUP = re.compile(r"\\(?:([1-9]\d?)|g<(\w+)>)")
_KEY_OF_GROUP = re.compile(r"""\[(?:f?)(['"])((?:(?!\1)[^\\{}])*(?:\\[1-9](?:(?!\1)[^\\{}])*)+)\1\]""")
"""The key of a lookup, in quotes, with the sign of a group: in expressions, that is the character U+0001."""
_DOLLAR = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_QUOTED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_QUOTE = re.compile("['\"]")


@dataclass(frozen=True)
class Mended:
    """A recipe's text before and after."""

    path: str
    before: str
    after: str
    problems: tuple[Problem, ...]
    """Remaining problems."""

    @property
    def diff(self) -> list[str]:
        """The lines of a unified diff, without line breaks; empty where nothing was mended."""
        old, new = (text.splitlines() for text in (self.before, self.after))
        return [line.rstrip("\n") for line in difflib.unified_diff(old, new, self.path, self.path, n=1)]


def mend_recipe(path: PathLike) -> Mended:
    """Rewrite a recipe without the mistakes that have a single remedy; comments and layout stay.

    The file is replaced in one step, and not at all where nothing was mended. Raises UsageError for a recipe
    of the package and where the file cannot be read, StorageError where it cannot be written.
    """
    name = os.fspath(path)
    if name.startswith(PREFIX):
        hint = "Write it to a file first, and mend that."
        raise UsageError(f"{shown(name)}: recipes of the package are not changed", hint=hint)
    try:
        text = read_text(name)
    except RecipeError as error:  # it is not UTF-8
        return Mended(name, "", "", error.problems)
    before = text.removeprefix("\ufeff")
    mark = text[: len(text) - len(before)]
    mended = mended_text(before, name)
    if mended.after != before:
        from ckpt_surgery.inputs.output_files import write_document

        write_document(name, f"{mark}{mended.after}".encode())
    return mended


def mended_text(text: str, path: str) -> Mended:
    """The text of a recipe without the mistakes that have a single remedy. Messages call it `path`."""
    after, problems = text, _problems(text, path)
    for _ in range(MOST_REMEDIES):
        remedied = _remedied(after, problems, path)
        if remedied is None:
            break
        after, problems = remedied
    return Mended(path, text, _with_keys_of_groups(after, problems, path), tuple(problems))


def _with_keys_of_groups(text: str, problems: Sequence[Problem], path: str) -> str:
    """Mend templates' groups in keys of `source[…]`, which lint misses, on lines where it finds nothing."""
    known, lines = set(map(_identity, problems)), text.split("\n")
    wrong = {problem.place.line for problem in problems if problem.place}
    for number, line in enumerate(lines, 1):
        changed = line if number in wrong else _with_groups_in_keys(line)
        if changed != line:
            candidate = [*lines[: number - 1], changed, *lines[number:]]
            if known >= set(map(_identity, _problems("\n".join(candidate), path))):
                lines = candidate
    return "\n".join(lines)


def _problems(text: str, path: str) -> Sequence[Problem]:
    try:
        parse_recipe(text, path, (), format_findings)
    except (RecipeError, UsageError) as error:
        return error.problems
    return ()


def _remedied(text: str, problems: Sequence[Problem], path: str) -> tuple[str, Sequence[Problem]] | None:
    """Text after the first remedy that applies, with its remaining problems; None if no remedy applies."""
    for problem in problems:
        tried = []
        for candidate in dict.fromkeys(_candidates(problem, text)):
            after = _problems(candidate, path)
            if candidate != text and _is_mended(problem, problems, after):
                tried.append((candidate, after))
        if len(tried) == 1:
            return tried[0]
    return None


def _is_mended(problem: Problem, before: Sequence[Problem], after: Sequence[Problem]) -> bool:
    """True if the remedy removes the problem and causes no new one."""
    old, now = Counter(map(_identity, before)), Counter(map(_identity, after))
    if now[_identity(problem)] >= old[_identity(problem)]:
        return False
    come = [new for new in after if not old[_identity(new)]]
    here = {new.code for new in come if new.place and problem.place and new.place.line == problem.place.line}
    if problem.code in SYNTAX:
        return here <= {Code.PATTERN}
    if problem.code is Code.UNKNOWN_FIELD:
        return Code.WRONG_VALUE not in here and not any(_is_brought(new, problem) for new in come)
    return not come


def _is_brought(new: Problem, mended: Problem) -> bool:
    """True if a new problem says that the mended field contradicts others of its mapping.

    Those inside the mended field were only hidden by its name.
    """
    if new.place is None or mended.place is None:
        return True
    mapping = _mapping(mended.place.path)
    return new.code in BROUGHT and mapping in (new.place.path, _mapping(new.place.path))


def _mapping(path: str) -> str:
    """Path of the mapping or list with an entry: `rules[0]` for `rules[0].match`, `rules` for `rules[0]`."""
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def _identity(problem: Problem) -> tuple[object, ...]:
    return (problem.code, problem.message, problem.place.line if problem.place else None)


def _candidates(problem: Problem, text: str) -> Iterator[str]:
    """Candidate texts in which a problem may be mended."""
    place, lines = problem.place, text.split("\n")
    if place is None or place.line is None or place.line > len(lines):
        return
    line = lines[place.line - 1]
    if line.rstrip("\r") != place.text.rstrip("\r"):
        return
    end = line[len(line.rstrip("\r")) :]
    for changed in _changed_lines(problem, line.rstrip("\r"), place.column - 1, place.width):
        yield "\n".join([*lines[: place.line - 1], changed + end, *lines[place.line :]])


def _changed_lines(problem: Problem, line: str, start: int, width: int) -> Iterator[str]:
    """Candidates for the line of a problem that begins at `start` and is `width` characters wide."""
    word, rest = line[start : start + width], line[start + width :]
    match problem.code:
        case Code.UNKNOWN_FIELD | Code.UNKNOWN_FUNCTION:
            known = tuple(function_names()) if problem.code is Code.UNKNOWN_FUNCTION else ()
            guess = _GUESS.search(problem.message)
            if guess is not None and _is_only(word, guess[1], known):
                yield f"{line[:start]}{guess[1]}{rest}"
        case Code.YAML | Code.YAML_FEATURE:
            yield from _in_quotes(line)
        case Code.UNCLEAR_VALUE if word.lower() in _BOOLEAN:
            yield f"{line[:start]}{_BOOLEAN[word.lower()]}{rest}"
            yield f"{line[:start]}'{word}'{rest}"
        case Code.EXPRESSION:
            yield _without_signs_of_templates(line)


def _is_only(word: str, guess: str, known: Sequence[str]) -> bool:
    """True if a misspelt name resembles this known one, and no other."""
    likeness = {name: difflib.SequenceMatcher(None, word, name).ratio() for name in {guess, *known}}
    own = likeness.pop(guess)
    return len(word) >= SHORTEST and own >= CLOSE and max(likeness.values(), default=0.0) < own - APART


def _in_quotes(line: str) -> Iterator[str]:
    """The line with its text in single quotes: one without quotes, or a regular expression in double ones."""
    field = _TEXT_FIELD.match(line)
    if field is not None:
        value = _TAIL.sub("", field["value"])
        yield f"{field['before']}{quoted(value)}{field['value'][len(value) :]}"
    for double in _DOUBLE.finditer(line):
        if "\\" in double[1] and not _YAML_ESCAPE.search(double[1]):
            yield f"{line[: double.start()]}{quoted(double[1])}{line[double.end() :]}"


def _without_signs_of_templates(line: str) -> str:
    """The line with `g[1]` for `\\1`, and `name` for `\\g<name>` and `${name}`, which only templates have."""
    field = _EXPRESSION_FIELD.match(line)
    if field is None:
        return line
    before, value = field.groups()
    inner = value.rstrip()[1:-1]
    if value.rstrip() == f"'{inner}'" and not _QUOTE.search(inner):  # the quotes are YAML's
        return f"{before}'{_expression(inner)}'{value[len(value.rstrip()) :]}"
    parts = _QUOTED.split(value)
    if value[:1] in ("'", '"') or any(_QUOTE.search(part) for part in parts[::2]):
        return line
    return before + "".join(_expression(part) if n % 2 == 0 else part for n, part in enumerate(parts))


def _with_groups_in_keys(line: str) -> str:
    """The line with `source[f'a/{g[1]}']` for `source['a/\\1']`, which no key can be."""
    field = _EXPRESSION_FIELD.match(line)
    if field is None or field[2][:1] in ("'", '"'):
        return line

    def text(key: re.Match[str]) -> str:
        name = re.sub(r"\\([1-9])", r"{g[\1]}", key[2])
        return f"[f{key[1]}{name}{key[1]}]"

    return field[1] + _KEY_OF_GROUP.sub(text, field[2])


def _expression(text: str) -> str:
    """Part of an expression that is not in quotes, without what only templates have."""
    text = _GROUP.sub(lambda group: f"g[{group[1]}]" if group[1] else str(group[2]), text)
    return _DOLLAR.sub(lambda dollar: str(dollar[1]), text)
