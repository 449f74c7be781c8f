"""Entries, which passes hand on: leaves with values that are not read yet, and the rules that made them."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import BOOL, DType
from ckpt_surgery.core.errors import Code, FunctionError, Place, PlanError, SurgeryError
from ckpt_surgery.core.folding import Notice
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key, text_of
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Array, Node, Read, Series, nodes_of, reads
from ckpt_surgery.functions.base import Number
from ckpt_surgery.functions.create import Full, InPlaceOf
from ckpt_surgery.language.expressions.scope import SOURCES, Leaves, Unavailable, described
from ckpt_surgery.language.patterns.templates import Component


@dataclass(frozen=True)
class RuleRef:
    """The rule that decided about a leaf."""

    path: str
    """`rules[3]`, or `passes[1].rules[0]`."""
    line: int | None
    """1-based, in the recipe file; None for a recipe that was given as data."""
    location: tuple[str | int, ...] = field(default=(), compare=False, repr=False)
    """Path of the rule in the document."""
    value: Place | None = field(default=None, compare=False, repr=False)
    """Where errors in the values point: at the rule's `value`, or at the whole rule if it has none."""
    name: str | None = field(default=None, compare=False, repr=False)
    """Origin of a generated rule, such as "transform `a/(.*)`"; None where somebody wrote it."""

    def __str__(self) -> str:
        return self.title if self.line is None else f"{self.path} (line {self.line})"

    @property
    def title(self) -> str:
        """The rule's path, or what it was made of."""
        return self.path if self.name is None else self.name


@dataclass(frozen=True)
class RuleEffect:
    """Changes that a rule made to a leaf, in the pass in which it decided about it."""

    rule: RuleRef
    renames: bool
    """Whether it gave the leaf another key."""
    computes: bool
    """Whether it gave the leaf another value."""


@frozen(eq=False)
class Entry:
    """A leaf between two passes: a key, metadata and a value that is not computed yet."""

    key: Key
    leaf: Leaf
    """The leaf whose kind, sharding and other metadata the entry has. The leaf's own key is its origin."""
    value: Node
    effects: tuple[RuleEffect, ...] = ()
    """Changes by the rules of all passes so far, also by those that only claimed it or one it looks up."""

    @property
    def rule(self) -> RuleRef | None:
        """The last rule that decided about the entry; None if only policies have decided so far."""
        return self.effects[-1].rule if self.effects else None


Listings = Mapping[str, Mapping[str, Leaf]]
"""The leaves of each source, by its name and the text of their key."""
Tree = Mapping[str, Entry]
"""Entries by the text of their key."""


@frozen(eq=False)
class Drop:
    """An entry that is left out, and why."""

    entry: Entry
    rule: RuleRef | None
    why: str


@dataclass(frozen=True)
class Decisions:
    """The outcome of all passes."""

    outputs: tuple[Entry, ...]
    drops: tuple[Drop, ...]
    """Entries that are left out, in the order of decision. Another output may still use what they read."""
    notices: tuple[Notice, ...]
    """Warnings of what is allowed and may still be a mistake."""


HAS_ARRAY = (LeafKind.ARRAY, LeafKind.SCALAR)
KINDS = {
    LeafKind.ARRAY: "an array",
    LeafKind.SCALAR: "a scalar",
    LeafKind.STRING: "a string",
    LeafKind.PRNG_KEY: "a typed PRNG key",
    LeafKind.EMPTY: "an empty node",
    LeafKind.OBJECT: "an object",
}
"""The kinds of leaves in words, for messages."""
CONVERT = "Make an array of it, with `np.asarray` for example, or drop it: `{match: KEY, drop: true}`."
"""Hint where an object of a tree is no leaf of a checkpoint."""


def not_held(leaf: Leaf) -> str:
    """The type of an object that is no leaf of a checkpoint, for messages."""
    return f"of type {leaf.type}, not an array of JAX or NumPy"


def array_of(entry: Entry) -> Array:
    """The array that an expression sees. Raises SurgeryError for strings, empty nodes and PRNG keys."""
    if entry.leaf.kind is LeafKind.OBJECT:
        raise SurgeryError(f"`{entry.key}` is {not_held(entry.leaf)}", hint=CONVERT, code=Code.NOT_AN_ARRAY)
    if entry.leaf.kind not in HAS_ARRAY:
        hint = "It can be kept, renamed, dropped or filled; no expression can use its value."
        why = f"`{entry.key}` is {KINDS[entry.leaf.kind]}, not an array"
        raise SurgeryError(why, hint=hint, code=Code.NOT_AN_ARRAY)
    if entry.leaf.spec is None:  # of a target that says nothing of it but its key
        raise SurgeryError(f"`{entry.key}` of the target has neither value nor shape", code=Code.NO_TARGET)
    return Array(entry.value, entry.value.spec.dtype)


def x_of(entry: Entry) -> Array | Unavailable:
    """Value of the name `x`: the entry's array, or the error that using `x` raises if it has none."""
    try:
        return array_of(entry)
    except SurgeryError as error:
        return Unavailable(error.problems[0].message, error.problems[0].hint, code=Code.NOT_AN_ARRAY)


class SourceLeaves(Leaves):
    """The entries of one tree as expressions see them: `source['a/b']`."""

    def __init__(self, name: str, tree: Tree, without_values: Set[str] = frozenset(), lack: str = ""):
        """`without_values`: keys of leaves that are only listed; `lack`: message about reading one, `{}`."""
        self.name = name
        self.tree = tree
        self._without_values = without_values
        self._lack = lack
        self.seen: set[str] = set()
        """The keys that were looked up. A leaf counts as used even if only its shape was asked for."""

    def lookup(self, text: str) -> Array | None:
        key = text if text in self.tree else text_of(text)
        self.seen.add(key)
        entry = self.tree.get(key)
        return None if entry is None else array_of(entry)

    def kind(self, text: str) -> str | None:
        entry = self.tree.get(text) or self.tree.get(text_of(text))
        return None if entry is None else str(entry.leaf.kind)

    def keys(self) -> Collection[str]:
        return self.tree.keys()

    def require_values(self, value: Any) -> None:
        """Raise PlanError if an array, or one in a list, is computed from leaves that have no value."""
        if isinstance(value, list | tuple):
            for item in value:
                self.require_values(item)
        for read in reads(value.node) if isinstance(value, Array) else ():
            if read.source == self.name and read.leaf.key.text in self._without_values:
                raise PlanError(self._lack.format(read.leaf.key.text), code=Code.NO_TARGET)


def names_of_sources(trees: Mapping[str, Tree]) -> dict[str, Any]:
    """The sources as expressions see them: each by its name, and the list `sources` of all names."""
    return {**{name: SourceLeaves(name, tree) for name, tree in trees.items()}, SOURCES: tuple(trees)}


def computed(value: object, model: Leaf | None, key: Key, replaced: Leaf | None = None) -> Entry:
    """The entry for the result of an expression; `model` is the leaf whose sharding it inherits.

    A mere number fills an array like `replaced`, the leaf whose value it replaces, or becomes a scalar of
    dtype int64, float64 or bool, as stock Orbax stores Python's numbers. Raises SurgeryError for what is
    neither an array nor a number, and for a number that the dtype does not hold.
    """
    if isinstance(value, bool | int | float):
        return _number(value, key, replaced if replaced is not None and replaced.kind in HAS_ARRAY else None)
    if isinstance(value, Leaf):
        return Entry(key, replace(value, key=key), Apply(Full((0,), 0, BOOL), ()))  # it has no elements
    if not isinstance(value, Array):
        problem = f"`value` gives {described(value)}, not an array or a number"
        raise SurgeryError(problem, hint=_way_out(value), code=Code.NOT_AN_ARRAY)
    node = value.rounded_to_declared()
    if isinstance(node, Read):
        return Entry(key, node.leaf, node)
    sharding = None  # a new shape keeps that of a single device alone
    if model is not None and model.sharding is not None and model.spec is not None:
        keeps = model.spec.shape == node.spec.shape or '"SingleDeviceSharding"' in model.sharding
        sharding = model.sharding if keeps else None
    is_scalar = node.spec.shape == () and node.kinds == {LeafKind.SCALAR}
    kind = LeafKind.SCALAR if is_scalar else LeafKind.ARRAY
    return Entry(key, Leaf(key, kind, node.spec, sharding=sharding), node)


def _way_out(value: object) -> str | None:
    """What to write where a value is several arrays; None for other values."""
    if isinstance(value, Series):
        return "Make one array of them: `stack(xs)`, say."
    if isinstance(value, Leaves):
        return f"Take one of its leaves: `{value.name}['a/b']`."
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return "Take one of them: write `[0]` behind the list, say." if is_list and value else None


def _number(value: Number, key: Key, replaced: Leaf | None) -> Entry:
    """The entry for a number: a scalar, or an array like the leaf that it replaces."""
    kind = bool if isinstance(value, bool) else int if isinstance(value, int) else float
    like = ArraySpec((), np.dtype(kind)) if replaced is None else replaced.spec
    assert like is not None
    node = Apply(Full(like.shape, value, like.dtype), ())
    try:
        spec = node.spec
    except FunctionError as error:
        hint = "A number keeps the dtype and shape of the leaf that it replaces. Another dtype is written "
        hint += f"with the value: `full((), {value}, 'float32')`, say."
        message = error.problems[0].message
        raise FunctionError(message, hint=None if replaced is None else hint, code=Code.ARGUMENTS) from None
    if replaced is None:
        return Entry(key, Leaf(key, LeafKind.SCALAR, spec), node)
    return Entry(key, Leaf(key, replaced.kind, spec, sharding=replaced.sharding), node)


def in_place_of(old: Entry, new: Entry) -> Entry:
    """The entry that takes the place of `old`: a value that follows from no leaf still replaces that one."""
    if old.leaf.kind not in HAS_ARRAY or any(reads(new.value)):
        return new
    return replace(new, value=Apply(InPlaceOf(), (new.value, old.value)))


def key_of(components: Sequence[Component], origin: Key | None, lists: frozenset[tuple[str, ...]]) -> Key:
    """The key with the components that a template gives.

    A component is a list index if the template says so (`[0]`), if it is a whole list index of `origin`, the
    matched key, or if its path is in `lists`, the paths of known lists; every other component is a dict key.
    """
    names = tuple(c.name for c in components)
    if not lists and not any(c.index for c in components) and not (origin and True in origin.sequences):
        return Key.of(names)
    given = origin or Key((), ())
    offsets = itertools.accumulate((len(name) + 1 for name in given.names), initial=0)
    parts = zip(offsets, given.names, given.sequences, strict=False)
    starts: dict[int | None, str] = {offset: name for offset, name, is_index in parts if is_index}
    sequences = tuple(
        c.index or (name.isdecimal() and (starts.get(c.origin) == name or names[:i] in lists))
        for i, (c, name) in enumerate(zip(components, names, strict=True))
    )
    return Key(names, sequences)


def with_lists(key: Key, lists: frozenset[tuple[str, ...]]) -> Key:
    """The key with list indices in the containers whose paths are in `lists`."""
    names = key.names
    return Key(names, tuple(name.isdecimal() and names[:i] in lists for i, name in enumerate(names)))


def under(key: Key, old: Sequence[str], new: Sequence[str], lists: frozenset[tuple[str, ...]]) -> Key | None:
    """`key` with its leading components `old` replaced by `new`; None if it does not start with `old`."""
    if key.names[: len(old)] != tuple(old):
        return None
    head = with_lists(Key.of(new), lists)
    return Key((*new, *key.names[len(old) :]), (*head.sequences, *key.sequences[len(old) :]))


PLACEHOLDER = "placeholder"
"""Reason for dropping a leaf for which the target has `...`, and which no rule claims."""


@frozen()
class Asked:
    """Kinds and dtype that a leaf of a target accepts; the shape is that of its `spec`, without one any."""

    kinds: Set[LeafKind]
    """Kinds of leaves that it takes."""
    dtype: DType | None = None
    """Dtype that `dtype: target` casts to, where the target's leaf has no `spec`; None: the value's own."""
    is_placeholder: bool = False
    """True for `...`: it gets a value only if a rule claims its key, and is left as it is otherwise."""


# --- which rules decided about a leaf -----------------------------------------------------------------------
#
# A last pass often only carries on what earlier ones made: it adds a prefix to all keys, for example. So the
# rule that a plan names for a leaf is the first that changed its value, else the first that changed its key,
# else the last that claimed it. All the others that changed it are listed beside that one.


Effects = tuple[RuleEffect, ...]


class EffectLog:
    """Follows the effects of rules through one pass."""

    def __init__(self, trees: Mapping[str, Tree]):
        """`trees`: the entries before the pass, by name of the source."""
        self._looked_up: dict[int, Effects] = {}
        """The rules that gave the values of earlier passes, by the identity of these, as rules that change
        nothing: so they count for a leaf whose value only looks such a value up."""
        self._known: dict[tuple[int, int, bool, bool], tuple[Effects, Effects]] = {}
        unchanging: dict[int, Effects] = {}  # leaves with the same effects share them
        for entry in (entry for tree in trees.values() for entry in tree.values() if entry.effects):
            if id(entry.effects) not in unchanging:
                rules = [effect.rule for effect in entry.effects]
                unchanging[id(entry.effects)] = tuple([RuleEffect(rule, False, False) for rule in rules])
            self._looked_up[id(entry.value)] = unchanging[id(entry.effects)]

    def after(self, rule: RuleRef, key: Key, value: Node, claimed: Sequence[Entry]) -> Effects:
        """The effects up to this pass on the leaf that a rule makes of the leaves that it claimed."""
        kept = next((entry for entry in claimed if entry.value is value), None)
        renames = len(claimed) != 1 or claimed[0].key.names != key.names
        if kept is not None:
            return self._extended(kept.effects, rule, renames, False)
        several = [entry.effects for entry in claimed]
        if self._looked_up:
            below = nodes_of(value, {id(entry.value) for entry in claimed}, ends=self._looked_up)
            several += [self._looked_up[id(node)] for node in below if id(node) in self._looked_up]
        return self._extended(_merged(several), rule, renames, True)

    def _extended(self, earlier: Effects, rule: RuleRef, renames: bool, computes: bool) -> Effects:
        """`earlier` and one effect more. Leaves with the same effects share them."""
        alike = (id(earlier), id(rule), renames, computes)
        if alike not in self._known:
            # `earlier` is kept with it, so that its identity stays its own.
            self._known[alike] = earlier, (*earlier, RuleEffect(rule, renames, computes))
        return self._known[alike][1]


def _merged(several: Iterable[Effects]) -> Effects:
    """The effects on several leaves together, in the order of passes and rules."""
    distinct = list({id(effects): effects for effects in several if effects}.values())
    if len(distinct) < 2:
        return distinct[0] if distinct else ()
    by_rule: dict[RuleRef, RuleEffect] = {}
    for rule, renames, computes in ((e.rule, e.renames, e.computes) for effects in distinct for e in effects):
        known = by_rule.setdefault(rule, RuleEffect(rule, renames, computes))
        by_rule[rule] = RuleEffect(rule, renames or known.renames, computes or known.computes)
    return tuple(sorted(by_rule.values(), key=lambda effect: effect.rule.location))


def deciding_rule(effects: Effects) -> RuleRef | None:
    """The rule that did the work on a leaf; None if no rule has claimed it."""
    computing = (effect.rule for effect in effects if effect.computes)
    return next(computing, None) or next(iter(changing_rules(effects)), None)


def naming_rule(effects: Effects) -> RuleRef | None:
    """The rule that gave a leaf its key, or the last that claimed it; None if no rule has."""
    renaming = [effect for effect in effects if effect.renames]
    return (renaming or effects)[-1].rule if effects else None


def changing_rules(effects: Effects) -> tuple[RuleRef, ...]:
    """The rules that changed a leaf; the last that claimed it if none did."""
    changing = tuple([effect.rule for effect in effects if effect.renames or effect.computes])
    return changing or tuple([effect.rule for effect in effects[-1:]])
