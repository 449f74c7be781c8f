"""Rules that the user knows to be true: the first rules of a draft, from which the others are learnt.

A hint is evaluated like any rule, over the leaves of the source. What it makes has to fit the target, or the
hint is refused with its place. Leaves that it claims and makes are decided; their names teach words, and
their values how similar leaves lie.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import Code, PlanError, Problem
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.functions.arrays import Node, reads
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, GivenRules, Value
from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.names.matches import Match, matches
from ckpt_surgery.inference.values.comparing import makes, random_values
from ckpt_surgery.inference.values.reading import SOURCE, Side, node_of
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.yaml.writing import rule_texts
from ckpt_surgery.planner.decisions import decide
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.running import PassRun

FIELDS = ("version", "description", "params", "tables", "unmatched", "rules")
"""Fields that a recipe of hints may have."""
IGNORED_VALUES = 'With `values="ignore"`, names and hints decide, and no values are compared.'
_TRIED = 4
"""Elements along each axis that are compared to recognize a layout."""


@dataclass(frozen=True)
class Hints:
    """Leaves that a recipe of hints decides."""

    given: GivenRules = field(default_factory=GivenRules)
    formations: tuple[Formation, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """The values of the leaves of the target that the rules make."""
    recipe: LoadedRecipe | None = None

    @property
    def claims(self) -> Mapping[str, int]:
        """The number of the rule that claims each of these leaves of the source."""
        return self.given.claims

    @property
    def dropped(self) -> list[str]:
        """Leaves of the source that rules drop."""
        return [key for key, rule in self.claims.items() if self.given.rules[rule].get("drop")]

    def different(self, source: Side, target: Side) -> list[str]:
        """The leaves of the target with other values than the hints make. Both sides can be read."""
        return [
            key
            for key, node in self.nodes.items()
            if target.leaves[key].spec is not None and not makes(node, target.leaves[key], source, target)
        ]

    def refuse_different(self, keys: Iterable[str]) -> None:
        """Raise PlanError for leaves of the target whose values are not those that the hints make."""
        message = "`{}` of the target has other values than this"
        refused = [self.problem(key, message.format(shown(key)), IGNORED_VALUES) for key in keys]
        if refused:
            raise PlanError(*refused)

    def problem(self, key: str, message: str, hint: str) -> Problem:
        """The problem of a leaf that a hint makes, with the hint's place."""
        assert self.recipe is not None, "without a recipe nothing is made"
        place = self.recipe.place(("rules", self.given.makes[key]))
        return Problem(f"the hint contradicts the target: {message}", place, hint, Code.TARGET_MISFIT)

    def without_claimed(self, side: Side) -> Side:
        """The source as if nothing were known of the values of what hints claim."""
        free = {key: known for key, known in side.fingerprints.items() if key not in self.claims}
        return replace(side, fingerprints=free)


def hints_of(loaded: LoadedRecipe, source: Side, target: Side) -> Hints:
    """Run the rules of a recipe of hints over the source.

    Raises PlanError for anything but one pass of `match` rules, for rules that cannot be run on the source,
    and for leaves that the target does not have, or has with another shape, dtype or kind.
    """
    value = loaded.document.value
    refused = list(_unsuited(loaded, value))
    if refused:
        raise PlanError(*refused)
    run = _run(loaded, source)
    claims = {claim.entry.key.text: rule.index for rule in run.rules for claim in rule.claims}
    makes, nodes, formations, misfits = {}, {}, [], []
    for key, entry in run.tree.items():
        if entry.rule is not None:
            makes[key], nodes[key] = int(entry.rule.location[-1]), entry.value
            misfits += [(key, *wrong) for wrong in _misfits(entry, target)]
            outputs = run.outputs.get((entry.rule, key), ())
            text = next((str(output.value.text) for output in outputs if output.value is not None), "x")
            sources = tuple(dict.fromkeys(read.leaf.key.text for read in reads(entry.value)))
            expression = Value(text.replace("{", "{{").replace("}", "}}"))
            formations.append(Formation(key, sources, expression, Evidence.HINT))
    texts, below = rule_texts(loaded.document)
    params, tables = value.get("params") or {}, value.get("tables") or {}
    given = GivenRules(tuple(value.get("rules") or ()), texts, below, params, tables, claims, makes)
    hints = Hints(given, tuple(formations), nodes, loaded)
    if misfits:
        raise PlanError(*(hints.problem(*each) for each in misfits))
    return hints


def _unsuited(loaded: LoadedRecipe, document: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of a recipe that has more than hints can have."""
    for name in document:
        if name not in FIELDS or (name == "unmatched" and document[name] != "error"):
            message = f"hints are one pass of `match` rules, and `{name}` is not part of them"
            hint = "Leave it out, and write it into the draft: all that no hint says is inferred."
            yield Problem(message, loaded.document.key_place((name,)), hint, Code.FIELDS_DISAGREE)
    for number, rule in enumerate(document.get("rules") or ()):
        for kind in {"fill", "add"} & rule.keys():
            message = f"hints are `match` rules: `{kind}` says nothing about leaves of the source"
            hint = "Write it into the draft, once the rest is decided."
            yield Problem(message, loaded.place(("rules", number)), hint, Code.FIELDS_DISAGREE)


def _run(loaded: LoadedRecipe, source: Side) -> PassRun:
    """The pass of the hints over the leaves of the source; what they do not claim is left out."""
    runs: list[PassRun] = []
    alone = replace(loaded, recipe=loaded.recipe.model_copy(update={"unmatched": "drop"}))
    try:
        decide(alone, {SOURCE: source.leaves}, None, runs.append)
    except PlanError as error:
        if any(problem.code is not Code.NOTHING_LEFT for problem in error.problems):
            raise
    return runs[0]


def _misfits(entry: Entry, target: Side) -> Iterator[tuple[str, str]]:
    """Message and advice for a leaf that does not fit the target."""
    key, leaf = entry.key.text, target.leaves.get(entry.key.text)
    if leaf is None:
        yield f"it has no leaf `{shown(key)}`{did_you_mean(key, target.leaves)}", "Write a key of the target."
        return
    spec = entry.value.spec if leaf.spec is not None and entry.leaf.spec is not None else entry.leaf.spec
    if spec != leaf.spec:
        hint = "Write an expression that gives this shape and dtype, such as `x.T` or `cast(x, 'bfloat16')`."
        yield f"`{shown(key)}` would be {spec}, and is {leaf.spec} there", hint
    elif spec is None and (leaf.string, leaf.empty) != (entry.leaf.string, entry.leaf.empty):
        yield f"`{shown(key)}` would be another {entry.leaf.kind}", "Leave the hint out."


def known_layouts(hints: Hints, source: Side, target: Side) -> list[tuple[Match, Layout]]:
    """Layouts of the leaves that hints decide, where they only move elements."""
    if not hints.formations:
        return []
    grids = [{key: grid for grid in side.alike() for key in grid.keys} for side in (source, target)]
    known: dict[object, tuple[Match, Layout]] = {}
    for hint in hints.formations:
        mine, theirs = grids[0].get(hint.sources[0]) if hint.sources else None, grids[1][hint.target]
        if mine is not None and mine.numeric and theirs.numeric:
            ways = [
                (way, layout)
                for way in matches(mine, theirs)
                for layout in way.layouts
                if any(_agrees(one, hint, hints, source) for one in way.formations(layout, Evidence.HINT, ""))
            ]
            if len(ways) == 1:
                known.setdefault((mine.text, theirs.text, hint.value.text), ways[0])
    return list(known.values())


def _agrees(formation: Formation, hint: Formation, hints: Hints, source: Side) -> bool:
    """True if a formation has the sources of a hint, and the same value, as far as a few elements show."""
    if (formation.target, formation.sources) != (hint.target, hint.sources):
        return False
    one = node_of(formation.value, [source.leaves[key] for key in formation.sources])
    other = hints.nodes[hint.target]
    if one.spec != other.spec:
        return False
    bounds = [((length - min(length, _TRIED)) // 2, min(length, _TRIED)) for length in one.spec.shape]
    region = Region(tuple(start for start, _ in bounds), tuple(map(sum, bounds)))
    return np.array_equal(evaluate(one, region, random_values), evaluate(other, region, random_values))
