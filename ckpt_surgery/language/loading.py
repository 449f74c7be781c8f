"""Loading of recipes: YAML is parsed and checked, and every problem is reported with its place.

Params have the value that the caller sets, otherwise that of the source's config, otherwise the default.
"""

import copy
import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from ckpt_surgery.core.errors import Code, FunctionError, Place, PlanError, Problem, RecipeError, UsageError
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.summary import LINES, Represented, Summary, text_rows
from ckpt_surgery.core.text import brief, did_you_mean
from ckpt_surgery.language.checks.findings import Finding, field_finding, prune
from ckpt_surgery.language.checks.recipe import findings
from ckpt_surgery.language.expressions.lookups import NO_CONFIGS, Config, Configs
from ckpt_surgery.language.expressions.scope import (
    CONFIG,
    CONFIGS,
    HOOKS,
    Constant,
    Table,
    Watched,
    bounded,
    described,
)
from ckpt_surgery.language.files import read_text, refuse_other_documents
from ckpt_surgery.language.hooks import HookSet
from ckpt_surgery.language.packaged import recipe_path
from ckpt_surgery.language.schema.field_types import constant
from ckpt_surgery.language.schema.fields import Param, Recipe
from ckpt_surgery.language.written import TracedFunction
from ckpt_surgery.language.yaml.document import DocumentPath, YamlDocument
from ckpt_surgery.language.yaml.parsing import parse_document


class ParamSource(enum.StrEnum):
    """Origin of the value of a param."""

    SET = "set"
    """`set`, or `--set` of the command line."""
    CONFIG = "config"
    """The config beside the source."""
    DEFAULT = "default"
    """The default in the recipe."""


@dataclass(frozen=True)
class ParamValue:
    """A param with its value, and the origin of the value."""

    name: str
    """Name of the param."""
    value: Constant
    """Text, a number, a truth value, or a tuple of those."""
    origin: ParamSource
    entry: str | None = None
    """Path in the config, if the value comes from it."""
    note: str | None = None
    """File that the value comes from, such as `config.json`. For a default: why the config gave none."""

    __repr__ = brief

    @property
    def text(self) -> str:
        """The value as `--set` takes it."""
        return _text(self.value)


def _text(value: Constant) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolved(name: str, param: Param, given: Mapping[str, Constant], config: Config) -> ParamValue:
    """The value of one param. Raises FunctionError if the config has a value of another type."""
    if name in given:
        return ParamValue(name, given[name], ParamSource.SET)
    for path in param.config:
        if (entry := config.value_at(path)) is None:
            continue
        value, file = bounded(entry[0]), entry[1]
        if isinstance(param.default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(param.default):
            hint = f'Set the value yourself: `set={{"{name}": VALUE}}`.'
            message = f"`{path}` in {file} is {described(value)}, not {type_name(param.default)}"
            raise FunctionError(message, hint=hint, code=Code.PARAM)
        return ParamValue(name, value, ParamSource.CONFIG, path, file)
    note = config.without(param.config) if param.config else None
    return ParamValue(name, param.default, ParamSource.DEFAULT, None, note)


def unsaid(values: Iterable[ParamValue]) -> list[str]:
    """One sentence about all defaults that stand in for values of a config, with the reasons; or none."""
    silent: dict[str, list[str]] = {}
    for value in values:
        if value.origin is ParamSource.DEFAULT and value.note is not None:
            silent.setdefault(value.note, []).append(f"{value.name}={value.text}")
    defaults = ", ".join(f"{', '.join(alike)} ({note})" for note, alike in silent.items())
    return [f"by default {defaults}"] if silent else []


def overridden(params: Mapping[str, Param], overrides: Iterable[str]) -> dict[str, Constant]:
    """The params that texts of the form `NAME=VALUE` set. Raises UsageError with all that are wrong."""
    values: dict[str, Constant] = {}
    problems: list[Problem] = []
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            problems.append(Problem(f"`{override}` is not of the form NAME=VALUE"))
        elif name not in params:
            known = f"; the recipe has {', '.join(params)}" if params else "; the recipe has no params"
            problems.append(Problem(f"unknown param `{name}`{did_you_mean(name, params) or known}"))
        elif (value := _read(text, params[name].default, name)) is None:
            problems.append(Problem(f"`{name}` has to be {type_name(params[name].default)}, not {text!r}"))
        else:
            values[name] = value
    if problems:
        raise UsageError(*problems, code=Code.PARAM)
    return values


def _read(text: str, default: Constant, name: str) -> Constant | None:
    """The text as a value of the default's type, or None."""
    if isinstance(default, str):
        return text
    is_texts = isinstance(default, tuple) and default and all(isinstance(item, str) for item in default)
    if is_texts and not text.lstrip().startswith("["):
        return (text,)  # a list of one
    try:
        document = parse_document(text, name)
    except RecipeError:
        return None
    value = tuple(document.value) if isinstance(document.value, list) else document.value
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    fits = type(value) is type(default) and not document.problems
    items = value if isinstance(value, tuple) else ()
    return value if fits and all(isinstance(item, str | int | float) for item in items) else None


def type_name(default: Constant) -> str:
    """The type of a default, for messages: `an integer`."""
    if isinstance(default, tuple):
        return "a list such as [1, 2]"
    return {bool: "true or false", int: "an integer", float: "a number"}.get(type(default), "text")


MAX_PROBLEMS = 100  # Limit on the problems that are reported

Check = Callable[[Recipe], Iterable[Finding]]
"""A check that needs more than the language, such as which formats exist."""


@dataclass(frozen=True, repr=False)
class LoadedRecipe(Represented):
    """A recipe that passed all checks that need no checkpoint, with its file."""

    path: str  # Path of the file, or `@name`, as the user gave it
    recipe: Recipe
    document: YamlDocument  # For the places of fields
    sha256: str  # Digest of the text in UTF-8, hexadecimal
    given: Mapping[str, Constant]  # Params that the caller sets
    configs: Configs = NO_CONFIGS  # Configs of the sources, once those are open
    hooks: HookSet | None = None  # The user's functions, if they are allowed
    set_texts: tuple[str, ...] = ()  # Values that the caller sets, as texts `NAME=VALUE`
    function: TracedFunction | None = None
    """The user's function that the recipe was traced from; None for recipes that were written."""

    def _summary(self) -> Summary:
        return Summary(self.path, (), text_rows(self.document.text), noun=LINES)

    @cached_property
    def param_values(self) -> tuple[ParamValue, ...]:
        """Params with their values and the origins of these.

        Raises PlanError if the config has a value of another type, SourceError if the config is damaged.
        """
        values: list[ParamValue] = []
        problems: list[Problem] = []
        for name, param in self.recipe.params.items():
            try:
                values.append(resolved(name, param, self.given, self.configs.first))
            except FunctionError as error:
                problems += [replace(p, place=self.place(("params", name))) for p in error.problems]
        if problems:
            raise PlanError(*problems)
        return tuple(values)

    @property
    def params(self) -> Mapping[str, Constant]:
        """The values of all params."""
        return {value.name: value.value for value in self.param_values}

    @cached_property
    def used_defaults(self) -> set[str]:
        """Names of the params whose default an expression has used because no config gives a value."""
        return set()

    @property
    def notes(self) -> list[str]:
        """A sentence about the defaults that expressions have used so far, where there are any."""
        return unsaid(value for value in self.param_values if value.name in self.used_defaults)

    @cached_property
    def names(self) -> Mapping[str, Any]:
        """The values of params, tables, configs and hooks for expressions, by name.

        Uses of defaults that no config gives are noted in `used_defaults`.
        """
        params = {
            one.name: one.value
            if one.note is None or one.origin is not ParamSource.DEFAULT
            else Watched(one.value, partial(self.used_defaults.add, one.name))
            for one in self.param_values
        }
        tables = {name: Table(name, entries, self.params) for name, entries in self.recipe.tables.items()}
        configs = {CONFIG: self.configs.first, CONFIGS: self.configs}
        return {**params, **tables, **configs, **({} if self.hooks is None else {HOOKS: self.hooks})}

    @property
    def directory(self) -> Path:
        """The directory of the recipe and of its hooks."""
        return Path(recipe_path(self.path)).parent

    def rule_location(self, pass_index: int, rule_index: int) -> DocumentPath:
        """The path of a rule in the document: `("rules", 3)`."""
        return (*self.recipe.placed_passes[pass_index][0], "rules", rule_index)

    def place(self, path: DocumentPath, start: int | None = None, end: int | None = None) -> Place:
        """The place of a field, or of characters of its text (by the offsets of an ExpressionError)."""
        return self.document.place(path, start, end)


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), check: Check = lambda recipe: ()
) -> LoadedRecipe:
    """Read and check a recipe: a file, or a recipe `@name` of the package.

    `overrides` have the form `NAME=VALUE`, with a value of the type of the param's default. `check` can find
    more problems. Raises UsageError if the file cannot be read or an override does not fit, RecipeError with
    all problems of the recipe.
    """
    return parse_recipe(read_text(recipe_path(str(path))), str(path), overrides, check)


def parse_recipe(
    text: str | YamlDocument,
    path: str,
    overrides: Sequence[str] = (),
    check: Check = lambda recipe: (),
    hooks: HookSet | None = None,
    rules: Mapping[DocumentPath, str] | None = None,
) -> LoadedRecipe:
    """Like `load_recipe`, for a text, or a document that has been read. Messages call it `path`.

    `hooks` are functions that the caller gives: expressions call them without a line `hooks:`. `rules` is
    None for a text that somebody wrote; see `YamlDocument`.
    """
    document = text if isinstance(text, YamlDocument) else parse_document(text, path, rules)
    refuse_other_documents(document.value, path)
    recipe = _valid(document, check, {}, hooks is not None)
    given = overridden(recipe.params, overrides)
    if given:  # patterns have the values of params in them
        recipe = _valid(document, check, given, hooks is not None)
    digest = hashlib.sha256(document.text.encode("utf-8", "surrogatepass")).hexdigest()
    return LoadedRecipe(path, recipe, document, digest, given, hooks=hooks, set_texts=tuple(overrides))


def _valid(document: YamlDocument, check: Check, given: Mapping[str, Constant], with_hooks: bool) -> Recipe:
    """The recipe. `given`: params that the caller sets. `with_hooks`: whether there are functions without a
    file. Raises RecipeError with all problems."""
    problems = list(document.problems)
    if not isinstance(document.value, dict):
        message = "a recipe is a mapping that starts with `version: 1`"
        problems.append(Problem(message, document.place(()), code=Code.UNREADABLE))
        raise RecipeError(*in_order(problems))
    recipe, broken = _parsed(document.value, given)
    more = [*findings(recipe, document.value, [f.path for f in broken], with_hooks), *check(recipe)]
    reported = {_spot(problem.place) for problem in problems}
    for finding in (*broken, *more):
        problem = located(document, finding)
        if reported.isdisjoint({_spot(problem.place), _spot(document.place(finding.path))}):
            problems.append(problem)
    if problems:
        raise RecipeError(*in_order(problems))
    return recipe


def _spot(place: Place | None) -> tuple[int, int, tuple[Any, ...]]:
    """Sorts places, and tells them apart."""
    if place is None:
        return (0, 0, ())
    if place.line is None:
        return (0, 0, (natural_order(place.path), place.column))
    return (place.line, place.column, ())


def _parsed(value: Mapping[str | int, Any], given: Mapping[str, Constant]) -> tuple[Recipe, list[Finding]]:
    """The recipe without the fields that do not parse, and the findings for those."""
    pruned = copy.deepcopy(dict(value))
    params = {**_defaults(pruned.get("params")), **given}
    broken: dict[tuple[DocumentPath, bool], Finding] = {}
    while True:
        try:
            return Recipe.model_validate(pruned, context=params), list(broken.values())
        except ValidationError as error:
            new = [field_finding(details, pruned) for details in error.errors(include_url=False)]
            assert any((f.path, f.at_key) not in broken for f in new), "a broken field was not removed"
            for finding in new:
                broken.setdefault((finding.path, finding.at_key), finding)
                prune(pruned, finding.path)


def _defaults(params: Any) -> Mapping[str, Constant | None]:
    """The defaults of params as patterns insert them; None where the config may give another value.

    One of a wrong type is a problem of the param alone.
    """
    defaults: dict[str, Constant | None] = {}
    for name, param in params.items() if isinstance(params, dict) else ():
        whole = param if isinstance(param, dict) else {"default": param}
        default: Constant = ""
        with suppress(PydanticCustomError):
            default = constant(whole.get("default"))
        defaults[str(name)] = None if whole.get("config") else default
    return defaults


def located(document: YamlDocument, finding: Finding) -> Problem:
    """A finding with its place in the document."""
    locate = document.key_place if finding.at_key else document.place
    place = locate(finding.path, finding.start, finding.end)
    return Problem(finding.message, place, finding.hint, finding.code)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems by line and column, without repeats, up to a limit."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: _spot(problem.place))
    if (more := len(ordered) - MAX_PROBLEMS) > 0:
        ordered[MAX_PROBLEMS:] = [Problem(f"and {more} more problems", code=ordered[-1].code)]
    return ordered
