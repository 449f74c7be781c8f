"""What fields of a recipe mean together: everything that can be told without a checkpoint.

A recipe comes here with the fields that do not parse taken out (`broken`), so that all other problems
are found at the same time.
"""

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.shardings import spec_flaw
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions import Expression, Flaw, check, function_names
from ckpt_surgery.language.models import ANY_MORE, Pass, Recipe, Rule, ShardingPolicy
from ckpt_surgery.language.patterns import compile_pattern
from ckpt_surgery.language.scope import CONFIG, CONFIGS, HOOKS, SOURCES, ExpressionError
from ckpt_surgery.language.templates import Template, check_groups, check_template
from ckpt_surgery.language.yaml_document import DocumentPath

TARGET = "target"
EVERYWHERE = (TARGET, SOURCES, CONFIG, CONFIGS)
"""Names that every expression knows."""
_FURTHER = re.compile(r"source_([0-9]{1,9})")
ALL_SOURCES = "*"
CLAIMS = ("match", "fill", "add")
ALWAYS = frozenset({"value", "when", "optional"})
FIELDS: Mapping[str, frozenset[str]] = {
    "match": ALWAYS | {"match", "source", "to", "drop", "by", "for", "mirror_value"},
    "fill": ALWAYS | {"fill", "source", "from", "fallback"},
    "add": ALWAYS | {"add", "for"},
}
"""Which fields go with which claim."""
EXCLUDED: Sequence[tuple[str, frozenset[str], str]] = (
    (
        "drop",
        frozenset({"to", "by", "for", "value", "mirror_value"}),
        "what is dropped has neither name nor value",
    ),
    ("fallback", frozenset({"from", "value"}), "the target's own value is taken as it is"),
)
"""Fields that leave no room for others, and why."""
MEANINGS: Mapping[str, str] = {
    "x": "`x` is the leaf that a `match` or `fill` rule claimed; there is none here",
    "xs": "`xs` is the list of leaves that share one `to`: it is for the values of a `match` rule with `to`",
    "key": "`key` is the key that a rule claimed; there is none here",
    "g": "`g` holds the groups of a regular expression; there is none here",
}
"""Names that stand for what a rule works on."""


@dataclass(frozen=True)
class Finding:
    """A problem of the recipe, before its place is looked up."""

    path: DocumentPath
    message: str
    start: int | None = None
    """Offsets in the scalar's value, or in the key where `at_key`."""
    end: int | None = None
    at_key: bool = False
    """The key that leads to the value is meant."""
    hint: str | None = None


@dataclass(frozen=True)
class Subject:
    """What is being checked."""

    recipe: Recipe
    written: Mapping[str | int, Any]
    """The document's value."""
    broken: frozenset[DocumentPath]
    """Fields that do not parse; they are missing from `recipe`."""

    @property
    def constants(self) -> frozenset[str]:
        """Every name that all expressions of the recipe know."""
        names = {*self.recipe.params, *self.recipe.tables, *self.recipe.named_sources, *EVERYWHERE}
        names |= {str(path[1]) for path in self.broken if len(path) > 1 and path[0] in ("params", "tables")}
        return frozenset(names | ({HOOKS} if "hooks" in self.written else set()))

    def is_broken(self, path: DocumentPath) -> bool:
        """Whether something there, or below, does not parse."""
        return any(broken[: len(path)] == path for broken in self.broken)


def findings(
    recipe: Recipe, written: Mapping[str | int, Any], broken: Iterable[DocumentPath]
) -> list[Finding]:
    """All problems, in no particular order."""
    subject = Subject(recipe, written, frozenset(broken))
    found = [*_header(subject), *_names(subject), *_params(subject)]
    located: list[tuple[DocumentPath, Pass]] = [((), recipe.passes[0])] if recipe.passes else []
    if recipe.written_passes is not None:
        located = [(("passes", i), pass_) for i, pass_ in enumerate(recipe.written_passes)]
    for path, pass_ in located:
        found += _pass(subject, path, pass_)
    return found


# --- the recipe as a whole --------------------------------------------------------------------


def _header(subject: Subject) -> Iterator[Finding]:
    written = subject.written
    for name in ("rules", "mirror"):
        if "passes" in written and name in written:
            yield Finding((name,), f"`{name}` belongs to one of the `passes` here", at_key=True)
    hooks = subject.recipe.hooks
    if hooks is not None and (
        not hooks.endswith(".py") or "/" in hooks or "\\" in hooks or hooks.startswith(".")
    ):
        yield Finding(
            ("hooks",), f"hooks are a Python file beside the recipe, such as my_hooks.py, not {hooks!r}"
        )
    sources = subject.recipe.sources
    if not subject.recipe.named_sources:
        yield Finding(("sources",), "there has to be one source at least, with a name")
    if ANY_MORE in sources[:-1]:
        message = f"`{ANY_MORE}` stands for any number of further sources: it comes last"
        yield Finding(("sources", sources.index(ANY_MORE)), message)
    yield from _output(subject)
    yield from _empty_fields(written, ())
    output = subject.recipe.output
    if output is not None and isinstance(output.sharding, ShardingPolicy):
        yield from _sharding(subject, output.sharding, ("output", "sharding"))


def _sharding(subject: Subject, policy: ShardingPolicy, path: DocumentPath) -> Iterator[Finding]:
    if subject.is_broken(path):
        return
    if not policy.mesh:
        yield Finding(path, "`sharding` needs a `mesh`: its axes with their lengths, as {data: 2, model: 4}")
        return
    for pattern, spec in policy.specs.items():
        if (flaw := spec_flaw(policy.mesh, spec)) is not None:
            yield Finding((*path, "specs", pattern.pattern), flaw)


def _output(subject: Subject) -> Iterator[Finding]:
    output = subject.recipe.output
    if output is None or not output.structure_file or subject.is_broken(("output", "zarr")):
        return
    if output.zarr != 2:
        message = "a structure file is for versions of Orbax that read zarr 2 only"
        yield Finding(("output", "structure_file"), message, hint="Add `zarr: 2`, or leave it out.")


def _empty_fields(written: Mapping[str | int, Any], path: DocumentPath) -> Iterator[Finding]:
    for name, value in written.items():
        if value is None and name not in ("params", "tables"):
            yield Finding(
                (*path, name), f"`{name}` has no value; write one, or leave the field out", at_key=True
            )


def _names(subject: Subject) -> Iterator[Finding]:
    """Every name that expressions use has one meaning."""
    recipe = subject.recipe
    owners: dict[str, str] = {}
    several: list[tuple[str, str, DocumentPath, bool]] = [
        *(("source", name, ("sources", i), False) for i, name in enumerate(recipe.named_sources)),
        *(("param", name, ("params", name), True) for name in recipe.params),
        *(("table", name, ("tables", name), True) for name in recipe.tables),
    ]
    for kind, name, path, at_key in several:
        problem = _name_problem(name, owners)
        further = _FURTHER.fullmatch(name) if recipe.takes_more else None
        if problem is None and further is not None and int(further[1]) > len(recipe.named_sources):
            problem = f"`{name}` is what a further source is called; choose another name"
        if problem is not None:
            yield Finding(path, problem, at_key=at_key)
        owners.setdefault(name, f"a {kind}")


def _params(subject: Subject) -> Iterator[Finding]:
    """A config has scalars to give."""
    for name, param in subject.recipe.params.items():
        if param.config and isinstance(param.default, tuple):
            message = "`config` gives text, a number, or true or false; this default is a list"
            yield Finding(("params", name, "config"), message, at_key=True)


def _name_problem(name: str, owners: Mapping[str, str]) -> str | None:
    """Why a name cannot be given, or None. `owners` says what names are taken for."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        return f"`{name}` is not a name: letters, digits and `_`, and no word of Python's"
    if name in function_names():
        return f"`{name}` is a function; choose another name"
    if name in MEANINGS or name in (*EVERYWHERE, HOOKS):
        return f"`{name}` has a meaning of its own in recipes; choose another name"
    return f"`{name}` is {owners[name]} already; choose another name" if name in owners else None


# --- passes -----------------------------------------------------------------------------------


def _pass(subject: Subject, path: DocumentPath, pass_: Pass) -> Iterator[Finding]:
    written = _at(subject.written, path)
    if path and isinstance(written, Mapping):
        yield from _empty_fields(written, path)
    if pass_.when is not None:
        yield from _expression_findings((*path, "when"), pass_.when, subject.constants, None)
    yield from _mirror(pass_, (*path, "mirror"))
    for index, rule in enumerate(pass_.rules):
        where = (*path, "rules", index)
        fields = _at(subject.written, where)
        if isinstance(fields, Mapping) and where not in subject.broken:
            yield from _RuleCheck(subject, pass_, where, rule, fields).findings()


def _at(value: Any, path: DocumentPath) -> Any:
    for part in path:
        value = value[part]
    return value


def _mirror(pass_: Pass, path: DocumentPath) -> Iterator[Finding]:
    prefixes = [((*path, name), name, True) for name in pass_.mirror]
    prefixes += [
        ((*path, name, i), slot, False)
        for name, slots in pass_.mirror.items()
        for i, slot in enumerate(slots)
    ]
    seen: list[str] = []
    for where, prefix, at_key in prefixes:
        if not all(prefix.split(SEPARATOR)):
            message = f"a mirrored tree is named by its key, such as opt_state/0/mu, not {prefix!r}"
            yield Finding(where, message, at_key=at_key)
        elif (other := next((s for s in seen if _overlap(s, prefix)), None)) is not None:
            yield Finding(where, f"`{prefix}` and `{other}` overlap: one lies in the other", at_key=at_key)
        seen.append(prefix)


def _overlap(a: str, b: str) -> bool:
    return a == b or a.startswith(b + SEPARATOR) or b.startswith(a + SEPARATOR)


# --- rules ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RuleCheck:
    """The checks of one rule."""

    subject: Subject
    pass_: Pass
    path: DocumentPath
    rule: Rule
    written: Mapping[str | int, Any]

    def findings(self) -> Iterator[Finding]:
        yield from _empty_fields(self.written, self.path)
        given = [
            str(name) for name, value in self.written.items() if value is not None and value is not False
        ]
        claims = [name for name in CLAIMS if name in self.written]
        if not claims and self._is_misspelt:
            return
        if len(claims) != 1:
            said = " and ".join(f"`{c}`" for c in claims) or "none"
            yield Finding(self.path, f"a rule has one of `match`, `fill` and `add`; this one has {said}")
            return
        yield from self._combinations(claims[0], given)
        yield from self._source()
        yield from self._own_names()
        yield from self._texts(claims[0])

    @property
    def _is_misspelt(self) -> bool:
        """A field is unknown: `match`, most likely, and a problem of its own."""
        return any((*self.path, name) in self.subject.broken for name in self.written)

    def _field(self, *names: str | int) -> DocumentPath:
        return (*self.path, *names)

    def _combinations(self, claim: str, given: Sequence[str]) -> Iterator[Finding]:
        """Which fields go together."""
        for name in given:
            owners = [c for c in CLAIMS if name in FIELDS[c]]
            if owners and name not in FIELDS[claim]:
                told = " or ".join(f"`{owner}`" for owner in owners)
                yield Finding(
                    self._field(name), f"`{name}` goes with {told}, not with `{claim}`", at_key=True
                )
        for strong, weak, why in EXCLUDED:
            for name in given if strong in given and strong in FIELDS[claim] else ():
                if name in weak and name in FIELDS[claim]:
                    message = f"`{name}` does not go with `{strong}: true`: {why}"
                    yield Finding(self._field(name), message, at_key=True)
        yield from self._missing(claim, given)

    def _missing(self, claim: str, given: Sequence[str]) -> Iterator[Finding]:
        if claim == "add" and "value" not in given:
            yield Finding(
                self.path, "an `add` rule needs a `value`: there is no leaf that it could take one from"
            )
        if isinstance(self.written.get("to"), Mapping) and "value" in given:
            message = "`value` does not go with a mapping in `to`, which has an expression for each output"
            yield Finding(self._field("value"), message, at_key=True)
        if isinstance(self.written.get("to"), Mapping) and "mirror_value" in given:
            message = "`mirror_value` does not go with a mapping in `to`: it is one value for all outputs"
            yield Finding(self._field("mirror_value"), message, at_key=True)
        for name in ("to", "for"):
            if self.written.get(name) == {}:
                yield Finding(self._field(name), f"`{name}` is an empty mapping", at_key=True)
        if "mirror_value" in given and not self.pass_.mirror:
            yield Finding(
                self._field("mirror_value"), "`mirror_value` needs a `mirror` on the pass", at_key=True
            )
        if self.rule.mirror_value is not None and self.rule.value is not None:
            kinds = {"xs" in value.names for value in (self.rule.value, self.rule.mirror_value)}
            if len(kinds) > 1:
                message = "`value` and `mirror_value` are both of `x`, or both of `xs`"
                yield Finding(self._field("mirror_value"), message)
        if claim == "match" and "by" in given and "drop" not in given:
            yield from self._by(given)

    def _by(self, given: Sequence[str]) -> Iterator[Finding]:
        if "to" not in given:
            yield Finding(
                self._field("by"), "`by` orders leaves that share one `to`; there is no `to`", at_key=True
            )
        elif not self.subject.is_broken(self.path) and not any(
            "xs" in value.names for value in self.rule.values
        ):
            yield Finding(self._field("by"), "`by` orders `xs`, which no value of the rule uses", at_key=True)

    def _source(self) -> Iterator[Finding]:
        source = self.rule.source
        if source is None or source == ALL_SOURCES:
            return
        known = self.subject.recipe.named_sources
        names = (
            [(source, self._field("source"))]
            if isinstance(source, str)
            else [(name, self._field("source", i)) for i, name in enumerate(source)]
        )
        for name, path in names:
            if name not in known and not self.subject.is_broken(("sources",)):
                yield Finding(path, f"unknown source `{name}`{did_you_mean(name, known)}")
        if not names:
            yield Finding(self._field("source"), "the list of sources is empty")

    # --- names ---

    @property
    def _pattern(self) -> regex.Pattern[str] | None:
        return self.rule.match or self.rule.fill

    @property
    def _variables(self) -> frozenset[str]:
        written = self.written.get("for")
        return frozenset(map(str, written)) if isinstance(written, Mapping) else frozenset()

    def _own_names(self) -> Iterator[Finding]:
        """Named groups and `for` variables have names of their own."""
        recipe = self.subject.recipe
        owners = dict.fromkeys(recipe.named_sources, "a source")
        owners |= dict.fromkeys(recipe.params, "a param") | dict.fromkeys(recipe.tables, "a table")
        pattern = self._pattern
        if pattern is not None:
            field = "match" if self.rule.match is not None else "fill"
            for name in pattern.groupindex:
                problem = _name_problem(name, owners)
                if problem is not None:
                    start = pattern.pattern.find(f"(?P<{name}>") + 4
                    yield Finding(self._field(field), f"the group {problem}", start, start + len(name))
            owners |= dict.fromkeys(pattern.groupindex, "a named group")
        for name in self._variables:
            problem = _name_problem(name, owners)
            if problem is not None:
                yield Finding(self._field("for", name), problem, at_key=True)

    def _texts(self, claim: str) -> Iterator[Finding]:
        """Every expression and template of the rule, with the names that it can use."""
        names = {"match": self._match_names, "fill": self._fill_names, "add": self._add_names}[claim]
        rule = self.rule
        for field, expression in (("when", rule.when), ("by", rule.by), ("value", rule.value)):
            yield from self._expression(self._field(field), expression, names(field))
        yield from self._expression(self._field("mirror_value"), rule.mirror_value, names("value"))
        for variable, expression in (rule.for_ or {}).items():
            yield from self._expression(self._field("for", variable), expression, names("for"))
        templates = (("from", rule.from_), ("add", rule.add), ("to", rule.to))
        for field, template in templates:
            if isinstance(template, Template):
                yield from self._template(self._field(field), template, names(field), at_key=False)
        if isinstance(rule.to, Mapping):
            for template, expression in rule.to.items():
                path = self._field("to", template.text)
                yield from self._template(path, template, names("to"), at_key=True)
                yield from self._expression(path, expression, names("value"))

    def _match_names(self, field: str) -> frozenset[str]:
        names = self._group_names | {"x", "key"}
        if field in ("to", "by", "value"):
            names |= self._variables
        return names | {"xs"} if field == "value" and self._gathers else names

    @property
    def _gathers(self) -> bool:
        """Whether several leaves can share one name: by `to`, or each from its own source."""
        source = self.written.get("source")
        return "to" in self.written or source == ALL_SOURCES or isinstance(source, list)

    def _fill_names(self, field: str) -> frozenset[str]:
        names = self._group_names | {"key"}
        return names if field == "from" else names | {"x"}

    def _add_names(self, field: str) -> frozenset[str]:
        names = self.subject.constants if field == "for" else self.subject.constants | self._variables
        return names | {"key"} if field == "value" else names

    @property
    def _group_names(self) -> frozenset[str]:
        pattern = self._pattern
        return (
            self.subject.constants
            | {"g"}
            | (frozenset() if pattern is None else frozenset(pattern.groupindex))
        )

    def _expression(
        self, path: DocumentPath, expression: Expression | None, known: frozenset[str]
    ) -> Iterator[Finding]:
        if expression is None:
            return
        if self._pattern is None and self.rule.add is None:
            known |= expression.names  # the pattern is broken: its groups are not known
            yield from _expression_findings(path, expression, known, None, groups=False)
        else:
            yield from _expression_findings(path, expression, known, self._pattern)

    def _template(
        self, path: DocumentPath, template: Template, known: frozenset[str], at_key: bool
    ) -> Iterator[Finding]:
        if self._pattern is None and self.rule.add is None:
            return
        known, explained = _explained(template.names, known)
        for flaw in check_template(template, known, self._pattern):
            yield Finding(path, flaw.message, flaw.start, flaw.end, at_key)
        for name in explained:
            start = template.text.find(name)
            yield Finding(path, MEANINGS[name], start, start + len(name), at_key)


def _explained(used: Iterable[str], known: frozenset[str]) -> tuple[frozenset[str], list[str]]:
    """The names to take for known, and those that have a meaning, but not here."""
    strange = [name for name in used if name in MEANINGS and name not in known]
    return known | frozenset(strange), strange


def _expression_findings(
    path: DocumentPath,
    expression: Expression,
    known: frozenset[str],
    pattern: regex.Pattern[str] | None,
    groups: bool = True,
) -> Iterator[Finding]:
    known, explained = _explained(expression.names, known)
    flaws = [*check(expression, known), *_pattern_flaws(expression)]
    if groups and "g" not in explained:
        flaws += check_groups(expression, pattern)
    flaws += [
        Flaw(MEANINGS[use.name], use.start, use.end) for use in expression.name_uses if use.name in explained
    ]
    for flaw in flaws:
        yield Finding(path, flaw.message, flaw.start, flaw.end)


def _pattern_flaws(expression: Expression) -> Iterator[Flaw]:
    """`count('…')` with a pattern that does not compile."""
    for call in expression.calls:
        if call.name == "count" and call.literal is not None:
            try:
                compile_pattern(call.literal)
            except ExpressionError as error:
                yield Flaw(error.message, call.start, call.end)
