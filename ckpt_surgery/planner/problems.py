"""The problems and warnings of one pass: collected, each with its place, and raised together at its end."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ckpt_surgery.core.errors import Code, Place, PlanError, Problem, SurgeryError
from ckpt_surgery.core.folding import FEW, Notice, few_keys, merged
from ckpt_surgery.core.text import number_of
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.yaml.document import DocumentPath
from ckpt_surgery.planner.entries import Entry, RuleRef, deciding_rule

Field = tuple[str, ...]
"""A field of a rule: `("value",)`, `("to", template)`, `("for", variable)`; `()` is the whole rule."""

MANY = 20
"""Number of problems without a rule that are reported before the rest are counted."""

MOST_NOTED = 2_000
"""Number of problems noted before planning ends: a rule that fails at one key fails at most of them."""

EXCHANGED = (
    "If the source and the target are exchanged, give them the other way round; `fill` rules are for leaves "
    "of the target."
)
"""Hint for a rule that matches keys of the target where the source has none that it matches."""
OPTIONAL = "Write `optional: true` if that is fine."


class Problems:
    """Problems and warnings of one pass. Equal problems of one rule are reported once."""

    def __init__(self, loaded: LoadedRecipe, pass_index: int):
        self.loaded = loaded
        self.pass_index = pass_index
        self.notices: list[Notice] = []
        """Warnings of what is allowed and may still be a mistake."""
        self.failed_rules: set[int] = set()
        """Numbers of the rules that have a problem."""
        self._refs: dict[int, RuleRef] = {}
        self._problems: dict[tuple[Any, ...], tuple[Problem, list[str]]] = {}
        self._noted = 0
        self._misfits: list[Notice] = []

    def ref(self, rule: int) -> RuleRef:
        """The rule's name and line, for plans and messages."""
        if rule not in self._refs:
            location = self.loaded.rule_location(self.pass_index, rule)
            own = self.loaded.place(location)
            value = (*location, "value")
            place = self.loaded.place(value if value in self.loaded.document.marks else location)
            self._refs[rule] = RuleRef(own.path, own.line, location, place, own.name)
        return self._refs[rule]

    def at(
        self, rule: int, field: Field, error: SurgeryError, key: str | None = None, at_key: bool = False
    ) -> None:
        """Note a problem in a field of a rule, found at one key; `at_key`: point at the field's name.

        Raises PlanError with all problems if they are MOST_NOTED.
        """
        self.failed_rules.add(rule)
        start, end = (error.start, error.end) if isinstance(error, ExpressionError) else (None, None)
        where = (*self.loaded.rule_location(self.pass_index, rule), *field)
        place = (self.loaded.document.key_place if at_key else self.loaded.place)(where, start, end)
        for problem in error.problems:
            placed = replace(problem, place=place)
            self._problems.setdefault((place, problem.message), (placed, []))[1].extend([key] if key else [])
        self._noted += 1
        if self._noted == MOST_NOTED:
            self.raise_all()

    def about(self, entry: Entry, notice: Notice, hint: str | None, code: Code | None) -> None:
        """Note a problem with an entry, at the rule that made it what it is."""
        rule = deciding_rule(entry.effects)
        place = None if rule is None else self.loaded.place(rule.location)
        self._misfits.append(replace(notice, about=(place, hint, code)))

    def general(self, problem: Problem) -> None:
        """Note a problem that belongs to no rule."""
        self._problems.setdefault((problem.message,), (problem, []))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self._problems and not self._misfits

    def own(self, field: str) -> DocumentPath:
        """The path in the document of a field that the pass has, or the recipe for all passes."""
        own = ("passes", self.pass_index, field)
        return own if own in self.loaded.document.marks else (field,)

    def warn(self, notice: Notice | str) -> None:
        """Note something that is allowed and may still be a mistake."""
        self.notices.append(Notice(notice) if isinstance(notice, str) else notice)

    def raise_all(self) -> None:
        """Raise PlanError with all problems, if there are any."""
        if not self.is_empty:
            listed = []
            for problem, keys in self._problems.values():
                # Leaves without values have nothing else in common.
                named = few_keys(keys, MANY if problem.code is Code.NO_TARGET else FEW)
                message = f"{problem.message} (at {named})" if keys else problem.message
                listed.append(replace(problem, message=message))
            listed += problems_of(self._misfits)
            listed = _once(listed) if self.loaded.path.startswith(PREFIX) else listed
            if any(one.hint == EXCHANGED for one in listed):
                # Rules for missing leaves would make a checkpoint of the wrong source.
                listed = [replace(p, hint=None) if p.code is Code.TARGET_MISSING else p for p in listed]
            ordered = sorted(_shortened(listed), key=lambda p: (p.place and p.place.line) or 0)
            raise PlanError(*_with_defaults(ordered, self.loaded.notes))


def problems_of(notices: Iterable[Notice]) -> list[Problem]:
    """A problem for each sentence that notices share; `about` of a notice is its place, hint and code."""
    return [Problem(one.sentence, *one.first.about) for one in merged(notices)]


def _with_defaults(problems: Sequence[Problem], defaults: Sequence[str]) -> list[Problem]:
    """The problems; the last one about shapes tells which sizes are defaults because no config gives them."""
    full = list(problems)
    last = max((n for n, one in enumerate(full) if one.code is Code.ARGUMENTS), default=None)
    if last is not None:
        hints = [full[last].hint, *(f"{note[0].upper()}{note[1:]}." for note in defaults)]
        full[last] = replace(full[last], hint=" ".join(filter(None, hints)) or None)
    return full


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Problems of a packaged recipe: that it is made for other names is told once, and not at each rule."""
    nothing = [p for p in problems if p.code is Code.CLAIMS_NOTHING and p.hint != OPTIONAL]
    if len(nothing) < 2:
        return list(problems)
    more = f"; the same is true of {number_of(len(nothing) - 1, 'more rule')}"
    counted = replace(nothing[0], message=f"{nothing[0].message}{more}")
    return [counted if p is nothing[0] else p for p in problems if p is nothing[0] or p not in nothing]


def _shortened(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The first few problems of each place: one mistake in a rule is found at thousands of keys."""
    places: dict[Place | None, list[Problem]] = defaultdict(list)
    for problem in problems:
        places[problem.place].append(problem)
    for place, alike in places.items():
        *before, last = alike[: MANY if place is None else FEW]
        more = len(alike) - len(before) - 1
        yield from before
        yield replace(last, message=f"{last.message}, and {more} more like it") if more else last
