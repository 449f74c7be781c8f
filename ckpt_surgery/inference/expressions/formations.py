"""Formations of target leaves from source leaves: the findings of `infer` and `invert`, before rules."""

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.language.yaml.writing import RuleText


class Evidence(enum.StrEnum):
    """Why something counts as decided, strongest first."""

    VALUES = "values"
    """Every element was compared, exactly, after the cast that the dtypes demand."""
    ARITHMETIC = "values after arithmetic"
    """The family was found by name, and every element is equal after a sum or a product with one number."""
    ONLY_LAYOUT = "names, the only layout that fits"
    """Names decide the family by a margin, and one layout is possible."""
    ANALOGY = "names, layout as of the others"
    """Several layouts fit; leaves with the same endings had only one, all the same."""
    HINT = "hint"
    """A rule that the user gave says so."""
    RECIPE = "recipe"
    """It inverts a step of a recipe."""


EvidenceName = Literal[
    "values",
    "values after arithmetic",
    "names, the only layout that fits",
    "names, layout as of the others",
    "hint",
]
"""The evidence of what `infer` finds, as its document has it."""
COMPARED = frozenset({Evidence.VALUES, Evidence.ARITHMETIC})
"""The kinds of evidence that promise that every element is equal."""


@frozen()
class Value:
    """An expression of the recipe language, with holes for numbers that differ from leaf to leaf."""

    text: str
    """It names one source leaf `x`, several of them `xs`, or as `xs[0]`, `xs[1]`, … one by one. A hole
    is written `{0}`, `{1}`, …: the number of an entry of `numbers`."""
    numbers: tuple[int, ...] = ()
    """Numbers to put into the holes."""
    ends: tuple[int | None, ...] = ()
    """The number with which each hole may be left empty: the bound of a slice at the end of its axis."""

    def __str__(self) -> str:
        pairs = itertools.zip_longest(self.numbers, self.ends)
        return self.text.format(*("" if number == end else number for number, end in pairs))


X = Value("x")
"""The one source leaf, as it is."""


@frozen()
class Formation:
    """One leaf of the target as an expression over leaves of the source."""

    target: str
    """Key of the leaf of the target."""
    sources: tuple[str, ...]
    """Keys of the leaves of the source, in the order of `xs`; at least one."""
    value: Value
    """`Value("x")` where the leaf is moved as it is."""
    evidence: Evidence
    why: str = ""
    """Details of the evidence: a clause without a full stop, or nothing."""


@frozen()
class Candidate:
    """One possible expression for leaves that are not decided."""

    sources: tuple[str, ...]
    """Keys of leaves of the source."""
    value: str
    """An expression of the recipe language."""
    score: float
    """Resemblance of the names, from 0 to 1."""
    how: str
    """`same`, `stack`, `unstack`, `split`, `concat`; empty where sizes do not fit."""
    makers: tuple[Callable[[], Iterable[Formation]], ...] = field(default=(), compare=False)
    """Functions that list its formations, called on demand; none where these are not known."""
    rules: tuple[str, ...] = ()
    """Rules of the command line that decide for it together; none where no such rules do."""

    @property
    def formations(self) -> Iterator[Formation]:
        """Its formations, leaf by leaf."""
        return itertools.chain.from_iterable(maker() for maker in self.makers)


@frozen()
class Undecided:
    """Leaves of the target that evidence does not decide."""

    targets: tuple[str, ...]
    """Their keys."""
    why: str
    """A clause without a full stop."""
    candidates: tuple[Candidate, ...] = ()
    """Possible sources, the likeliest first."""
    own_value: tuple[str, ...] = ()
    """Rules of the command line that leave them the target's own values; none where that cannot be meant."""


@frozen()
class Proposal:
    """Leaves of the target that one kind of evidence decides, and those that it leaves open."""

    formations: tuple[Formation, ...]
    undecided: tuple[Undecided, ...]


@frozen()
class ConflictEntry(Document):
    """A leaf whose values are not those of the leaf that its name says."""

    target: str
    """Its key."""
    by_values: tuple[str, ...]
    """The leaves that hold its values, which it is made of."""
    by_names: tuple[str, ...]
    """The leaves that its name says."""


@frozen()
class GivenRules:
    """Rules that the user gives, and the leaves that they use and make."""

    rules: tuple[Mapping[str, Any], ...] = ()
    """The rules in the types of JSON."""
    texts: tuple[RuleText, ...] = ()
    """The rules as text, in the same order."""
    below: tuple[str, ...] = ()
    """Comments below the last rule."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The params that they use."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """The tables that they use."""
    claims: Mapping[str, int] = field(default_factory=dict)
    """The number of the rule that claims each of these leaves of the source."""
    makes: Mapping[str, int] = field(default_factory=dict)
    """The number of the rule that makes each of these leaves of the target."""

    @property
    def names(self) -> frozenset[str]:
        """Names that the rest of the draft may not give to anything else."""
        return frozenset((*self.params, *self.tables))


class Shared(enum.StrEnum):
    """Share of the target's numbers that are in the source."""

    SHARED = "shared"
    """At least half of the elements."""
    PARTLY = "partly"
    """Some, but less than half."""
    UNRELATED = "unrelated"
    """None, although the target has values."""
    NONE = "none"
    """The target is a listing, or its values were not to be looked at."""


@frozen()
class Findings:
    """All that is known of how to make a target from a source."""

    source_keys: tuple[str, ...]
    """Every key of the source. No rule may claim more keys than it is for."""
    target_keys: tuple[str, ...]
    """Every key of the target."""
    formations: tuple[Formation, ...]
    """Ordered as the target; at most one for each of its keys."""
    dropped: tuple[str, ...] = ()
    """Keys of the source that feed nothing, on purpose."""
    from_target: tuple[str, ...] = ()
    """Keys of the target that keep the target's own value."""
    undecided: tuple[Undecided, ...] = ()
    """Leaves that evidence does not decide."""
    conflicts: tuple[ConflictEntry, ...] = ()
    """Where values and names disagree: values were followed."""
    given: GivenRules = field(default_factory=GivenRules)
    """Rules that come first, and make their leaves."""
    shared: Shared = Shared.NONE
