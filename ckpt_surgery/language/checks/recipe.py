"""Checks of a whole recipe that need no checkpoint: which fields, names and passes go together.

Fields that do not parse were removed from the recipe before (`broken`), so that all other problems are found
in the same run.
"""

import functools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from ckpt_surgery.core.errors import Code
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.shardings import spec_flaw
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.checks.findings import Finding, Subject, empty_fields
from ckpt_surgery.language.expressions.naming import name_problem
from ckpt_surgery.language.expressions.parsing import MAX_TEXT, Expression, check
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.patterns.templates import Template, check_template
from ckpt_surgery.language.schema.fields import ANY_MORE, Pass, Recipe, Rule, ShardingPolicy
from ckpt_surgery.language.yaml.document import DocumentPath

ALL_SOURCES = "*"
MAX_LET_TEXT = 8 * MAX_TEXT
"""Characters of the entries of a `let` together: 780 pairs of forty models that are merged take 60,000."""
MAX_LET_DEPTH = 96  # Limit on the nesting of an entry of `let`, with the entries that it uses written out
CLAIMS = ("match", "fill", "add")
ALWAYS = frozenset({"let", "value", "when", "optional"})
FIELDS: Mapping[str, frozenset[str]] = {
    "match": ALWAYS | {"match", "source", "to", "drop", "by", "for", "mirror_value"},
    "fill": ALWAYS | {"fill", "source", "from", "fallback"},
    "add": ALWAYS | {"add", "for"},
}
"""Fields that each claim allows."""
EXCLUDED: Mapping[str, tuple[Sequence[str], str]] = {
    "drop": (("to", "by", "for", "let", "value", "mirror_value"), "a dropped leaf has no name and no value"),
    "fallback": (("from", "let", "value"), "the target's own value is used unchanged"),
}
"""Fields that exclude others where they are true, the others, and the reason."""


@dataclass(frozen=True)
class RuleCheck:
    """The checks of one rule."""

    subject: Subject
    pass_: Pass
    path: DocumentPath
    rule: Rule
    written: Mapping[str | int, Any]

    def findings(self) -> Iterator[Finding]:
        yield from empty_fields(self.written, self.path)
        claims = [name for name in CLAIMS if name in self.written]
        if len(claims) == 1:
            yield from self._combinations(claims[0])
            yield from self._source()
            yield from self._own_names()
            yield from self._texts(claims[0])
        # An unknown field is reported anyway, and is most likely a misspelt `match`.
        elif claims or self.subject.broken.isdisjoint((*self.path, name) for name in self.written):
            said = " and ".join(f"`{c}`" for c in claims) or "none"
            yield Finding(self.path, f"a rule has one of `match`, `fill` and `add`; this one has {said}")

    def _field(self, *names: str | int) -> DocumentPath:
        return (*self.path, *names)

    def _wrong(self, name: str, message: str, code: Code = Code.FIELDS_DISAGREE) -> Finding:
        """A problem with the presence of a field."""
        return Finding(self._field(name), message, at_key=True, code=code)

    def _combinations(self, claim: str) -> Iterator[Finding]:
        """Fields that do not go together."""
        given = [
            str(name) for name, value in self.written.items() if value is not None and value is not False
        ]
        for name in given:
            owners = [c for c in CLAIMS if name in FIELDS[c]]
            if owners and claim not in owners:
                allowed = " or ".join(f"`{owner}`" for owner in owners)
                yield self._wrong(name, f"`{name}` goes with {allowed}, not with `{claim}`")
            for strong in FIELDS[claim].intersection(EXCLUDED):
                weak, why = EXCLUDED[strong]
                if claim in owners and name in weak and self.written.get(strong) is True:
                    yield self._wrong(name, f"`{name}` does not go with `{strong}: true`: {why}")
        yield from self._missing(claim, given)

    def _missing(self, claim: str, given: Sequence[str]) -> Iterator[Finding]:
        rule, has_several = self.rule, isinstance(self.written.get("to"), Mapping)
        if claim == "add" and "value" not in given:
            message = "an `add` rule needs a `value`, because it claims no leaf that has one"
            yield Finding(self.path, message, code=Code.MISSING_FIELD)
        for name in ("to", "for", "let"):
            if self.written.get(name) == {}:
                yield self._wrong(name, f"`{name}` is an empty mapping", Code.MISSING_FIELD)
        for name in ("value", "mirror_value"):
            if has_several and name in given:
                message = f"`{name}` does not go with a mapping in `to`, which has a value for each output"
                yield self._wrong(name, message)
        if "mirror_value" in given and not self.pass_.mirror:
            yield self._wrong("mirror_value", "`mirror_value` needs a `mirror` on the pass")
        uses_xs = ["xs" in rule.names_in(value) for value in rule.values]
        if rule.mirror_value and rule.value and uses_xs[0] != ("xs" in rule.names_in(rule.mirror_value)):
            message = "`value` and `mirror_value` must both use `x`, or both use `xs`"
            yield Finding(self._field("mirror_value"), message)
        if claim == "match" and "by" in given and "drop" not in given:
            if "to" not in given:
                yield self._wrong("by", "`by` orders leaves that share one `to`; there is no `to`")
            elif not any(uses_xs) and not self.subject.is_broken(self.path):
                yield self._wrong("by", "`by` orders `xs`, which no value of the rule uses")

    def _source(self) -> Iterator[Finding]:
        source, known = self.rule.source, self.subject.recipe.named_sources
        if source is None or source == ALL_SOURCES:
            return
        for i, name in enumerate([source] if isinstance(source, str) else source):
            if name not in known and not self.subject.is_broken(("sources",)):
                path = self._field("source", *(() if isinstance(source, str) else (i,)))
                message = f"unknown source `{name}`{did_you_mean(name, known)}"
                yield Finding(path, message, code=Code.UNKNOWN_SOURCE)
        if not source:
            yield Finding(self._field("source"), "the list of sources is empty", code=Code.UNKNOWN_SOURCE)

    @property
    def _pattern(self) -> regex.Pattern[str] | None:
        return self.rule.match or self.rule.fill

    def _names_of(self, field: str) -> Sequence[str]:
        """The names that `for` or `let` gives, also those whose expressions do not parse."""
        written = self.written.get(field)
        return [*map(str, written)] if isinstance(written, Mapping) else []

    def _own_names(self) -> Iterator[Finding]:
        """Named groups, `for` variables and names of `let` that are not allowed, or taken."""
        recipe = self.subject.recipe
        owners = dict.fromkeys(recipe.named_sources, "a source")
        owners |= dict.fromkeys(recipe.params, "a param") | dict.fromkeys(recipe.tables, "a table")
        groups = () if self._pattern is None else self._pattern.groupindex
        field = "match" if self.rule.match is not None else "fill"
        for name in groups:
            if problem := name_problem(name, owners):
                start = str(self.written[field]).find(f"(?P<{name}>") + 4
                end, message = start + len(name), f"the group {problem}"
                yield Finding(self._field(field), message, start, end, code=Code.NAME)
        owners |= dict.fromkeys(groups, "a named group")
        for field in ("for", "let"):
            for name in self._names_of(field):
                if problem := name_problem(name, owners):
                    yield Finding(self._field(field, name), problem, at_key=True, code=Code.NAME)
            owners |= dict.fromkeys(self._names_of(field), "a variable of `for`")

    def _known(self, claim: str, field: str) -> frozenset[str]:
        """The names that the expressions of a field can use, those of `let` apart."""
        variables = self._names_of("for")
        if claim == "add":
            own = [*(variables if field != "for" else ()), *(["key"] if field == "value" else ())]
        else:
            own = ["g", "key", *(() if self._pattern is None else self._pattern.groupindex)]
            own += ["x"] if claim == "match" or field != "from" else []
        if claim == "match" and field in ("to", "by", "value"):
            own += variables
            # Several leaves can share one name: by `to`, or as leaves of different sources.
            source = self.written.get("source")
            shares = "to" in self.written or source == ALL_SOURCES or isinstance(source, list)
            own += ["xs"] if field == "value" and shares else []
        return self.subject.constants.union(own)

    def _texts(self, claim: str) -> Iterator[Finding]:
        """Errors of every expression and template of the rule, with the names that it can use."""
        rule, in_value = self.rule, self._known(claim, "value")
        yield from self._let(in_value)
        seen = in_value | frozenset(self._names_of("let"))
        for field, expression in (("value", rule.value), ("mirror_value", rule.mirror_value)):
            yield from self._text((field,), expression, seen)
        to, outputs = (None, rule.to) if isinstance(rule.to, Mapping) else (rule.to, {})
        texts = {"when": rule.when, "by": rule.by, "from": rule.from_, "add": rule.add, "to": to}
        for field, text in texts.items():
            yield from self._text((field,), text, self._known(claim, field))
        for variable, expression in (rule.for_ or {}).items():
            yield from self._text(("for", variable), expression, self._known(claim, "for"))
        for template, expression in outputs.items():
            yield from self._text(("to", template.text), template, self._known(claim, "to"), at_key=True)
            yield from self._text(("to", template.text), expression, seen)

    def _let(self, seen: frozenset[str]) -> Iterator[Finding]:
        """Errors of the entries of `let`. `seen`: the names that they can use, but for each other's."""
        entries = self.rule.let or {}
        length = sum(len(entry.text) for entry in entries.values())
        if length > MAX_LET_TEXT:
            message = f"entries of {length:,} characters together; the limit is {MAX_LET_TEXT:,}"
            yield Finding(self._field("let"), message, at_key=True, code=Code.EXPRESSION)
        levels: dict[str, int] = {}
        for number, name in enumerate(written := self._names_of("let")):
            entry, path = entries.get(name), self._field("let", name)
            if entry is None:
                continue
            yield from self._text(("let", name), entry, seen | {*written})
            for use in entry.notes.name_uses:
                if use.name in written[number:]:
                    message = f"`{use.name}` is not known yet: an entry of `let` sees those before it"
                    yield Finding(path, message, use.start, use.end, code=Code.UNKNOWN_NAME)
            levels[name] = entry.notes.depth + max([levels.get(used, 0) for used in entry.names], default=0)
            if levels[name] > MAX_LET_DEPTH:
                message = f"nested deeper than {MAX_LET_DEPTH} levels, with the entries that it uses"
                yield Finding(path, message, code=Code.EXPRESSION)
                return

    def _text(
        self,
        field: DocumentPath,
        text: Expression | Template | None,
        known: frozenset[str],
        at_key: bool = False,
    ) -> Iterator[Finding]:
        """Errors of one text; its groups are unknown where the regular expression does not parse."""
        errors: Sequence[ExpressionError] = ()
        given = known, self.subject.recipe.named_sources, self._pattern
        if self._pattern is None and self.rule.add is None:
            errors = text.notes.wrong_calls if isinstance(text, Expression) else ()
        elif text is not None:
            errors = check(text, *given) if isinstance(text, Expression) else check_template(text, *given)
        for error in errors:
            yield Finding.of(self._field(*field), error, at_key)


def unused_lets(recipe: Recipe) -> Iterator[Finding]:
    """A finding for each entry that neither a value nor an entry used by one refers to."""
    for path, pass_ in recipe.placed_passes:
        for number, rule in enumerate(pass_.rules):
            values = rule.values if rule.mirror_value is None else (*rule.values, rule.mirror_value)
            used = frozenset().union(*map(rule.names_in, values))
            for name in rule.let or ():
                if name not in used:
                    where = (*path, "rules", number, "let", name)
                    message = f"`{name}` is not used: no value of the rule depends on it"
                    yield Finding(where, message, at_key=True, hint="Remove it, or use it in `value`.")


_FURTHER = re.compile(r"source_([0-9]{1,9})")


def findings(
    recipe: Recipe, written: Mapping[str | int, Any], broken: Iterable[DocumentPath], with_hooks: bool = False
) -> list[Finding]:
    """All problems, in no particular order. `with_hooks`: the caller gives functions, which have no file."""
    subject = Subject(recipe, written, frozenset(broken), with_hooks)
    problems = [*_header(subject), *_names(subject)]
    for path, pass_ in recipe.placed_passes:
        problems += _pass(subject, path, pass_)
    return problems


def _header(subject: Subject) -> Iterator[Finding]:
    written = subject.written
    for name in ("rules", "mirror"):
        if "passes" in written and name in written:
            message = f"`{name}` must be inside one of the `passes` if there are any"
            yield Finding((name,), message, at_key=True)
    hooks = subject.recipe.hooks
    if hooks is not None and not re.fullmatch(r"[^./\\][^/\\]*\.py", hooks):
        message = f"hooks are a Python file beside the recipe, such as my_hooks.py, not {hooks!r}"
        yield Finding(("hooks",), message, code=Code.HOOKS)
    sources = subject.recipe.sources
    if not subject.recipe.named_sources:
        message = "a recipe needs at least one source with a name"
        yield Finding(("sources",), message, code=Code.UNKNOWN_SOURCE)
    if ANY_MORE in sources[:-1]:
        message = f"`{ANY_MORE}` stands for any number of further sources; it must come last"
        yield Finding(("sources", sources.index(ANY_MORE)), message, code=Code.UNKNOWN_SOURCE)
    for name, param in subject.recipe.params.items():
        if param.config and isinstance(param.default, tuple):
            message = "`config` can give text, a number, true or false, but this default is a list"
            yield Finding(("params", name, "config"), message, at_key=True, code=Code.PARAM)
    yield from _output(subject)
    yield from empty_fields(written, ())


def _output(subject: Subject) -> Iterator[Finding]:
    output, path = subject.recipe.output, ("output", "sharding")
    if output is None:
        return
    if output.structure_file and output.zarr != 2 and not subject.is_broken(("output", "zarr")):
        message = "a structure file is for versions of Orbax that only read zarr 2: add `zarr: 2`"
        yield Finding(("output", "structure_file"), message)
    policy = output.sharding
    if not isinstance(policy, ShardingPolicy) or subject.is_broken(path):
        return
    if not policy.mesh:
        message = "`sharding` needs a `mesh`: its axes with their lengths, such as {data: 2, model: 4}"
        yield Finding(path, message, code=Code.SHARDING)
        return
    for pattern, spec in policy.specs.items():
        if (flaw := spec_flaw(policy.mesh, spec)) is not None:
            yield Finding((*path, "specs", pattern.pattern), flaw, code=Code.SHARDING)


def _names(subject: Subject) -> Iterator[Finding]:
    """Names of sources, params and tables that are not allowed, or are taken already."""
    recipe = subject.recipe
    owners: dict[str, str] = {}
    several: list[tuple[str, str, DocumentPath, bool]] = [
        *(("source", name, ("sources", i), False) for i, name in enumerate(recipe.named_sources)),
        *(("param", name, ("params", name), True) for name in recipe.params),
        *(("table", name, ("tables", name), True) for name in recipe.tables),
    ]
    for kind, name, path, at_key in several:
        problem = name_problem(name, owners, subscripted=kind == "source")
        further = _FURTHER.fullmatch(name) if recipe.takes_more else None
        if problem is None and further is not None and int(further[1]) > len(recipe.named_sources):
            problem = f"`{name}` is the name of a further source; choose another name"
        if problem is not None:
            yield Finding(path, problem, at_key=at_key, code=Code.NAME)
        owners.setdefault(name, f"a {kind}")


def _pass(subject: Subject, path: DocumentPath, pass_: Pass) -> Iterator[Finding]:
    written: Any = functools.reduce(operator.getitem, path, subject.written)
    if path and isinstance(written, Mapping):
        yield from empty_fields(written, path)
    if pass_.when is not None:
        for error in check(pass_.when, subject.constants, subject.recipe.named_sources):
            yield Finding.of((*path, "when"), error)
    yield from _mirror(pass_, (*path, "mirror"))
    for index, rule in enumerate(pass_.rules):
        where = (*path, "rules", index)
        fields = written["rules"][index]
        if isinstance(fields, Mapping) and where not in subject.broken:
            yield from RuleCheck(subject, pass_, where, rule, fields).findings()


def _mirror(pass_: Pass, path: DocumentPath) -> Iterator[Finding]:
    trees: list[tuple[DocumentPath, str, bool]] = [((*path, name), name, True) for name in pass_.mirror]
    for name, slots in pass_.mirror.items():
        trees += [((*path, name, i), slot, False) for i, slot in enumerate(slots)]
    for number, (where, tree, at_key) in enumerate(trees):
        message, below = "", f"{tree}{SEPARATOR}"
        for _, other, _ in trees[:number]:
            if below.startswith(f"{other}{SEPARATOR}") or other.startswith(below):
                message = f"`{tree}` and `{other}` overlap; mirrored trees must lie apart"
        if not all(tree.split(SEPARATOR)):
            message = f"a mirrored tree is given by its key, such as opt_state/0/mu, not {tree!r}"
        if message:
            yield Finding(where, message, at_key=at_key, code=Code.MIRROR)
