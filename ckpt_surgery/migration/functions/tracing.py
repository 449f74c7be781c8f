"""Trace a function of trees as a recipe: call it once with stand-ins, and turn its result into rules."""

import ast
import copy
import functools
import inspect
import itertools
import os
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from ckpt_surgery.core.errors import Problem, UsageError
from ckpt_surgery.core.folding import Notice, sentences
from ckpt_surgery.core.keys import SEPARATOR, Key, list_paths, nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.language.expressions.naming import name_problem
from ckpt_surgery.language.expressions.parsing import MAX_TEXT
from ckpt_surgery.language.written import TracedFunction
from ckpt_surgery.live.tree import EMPTY_NODES, LiveTree, live_tree
from ckpt_surgery.migration.functions.rules import KeyMove, Rule, escaped, move_rules, template_of
from ckpt_surgery.migration.originals import Original
from ckpt_surgery.migration.promotions import JAX, NUMPY
from ckpt_surgery.migration.recipes import MOST_NAMED, MigratedRecipe
from ckpt_surgery.migration.recorded_arrays import StandIn
from ckpt_surgery.migration.replacing import is_library, replaced, user_place
from ckpt_surgery.migration.stand_in_arrays import ArrayRecorder, source_stand_in
from ckpt_surgery.migration.standins import Untraceable

SOURCE = "source"
VALUELESS = (LeafKind.STRING, LeafKind.EMPTY)
"""Kinds of leaves that a function gets unchanged."""
NUMERIC = (LeafKind.ARRAY, LeafKind.SCALAR, LeafKind.PRNG_KEY)
"""Kinds of leaves that a function gets as stand-ins."""


def recipe_of_function(
    function: Callable[..., Any], sources: Sequence[Original], uint16: str | None = None
) -> MigratedRecipe:
    """Trace a function of one tree per source as a recipe.

    `uint16`: how arrays of uint16 are read, as the recipe's `input` says it.

    It is called once, with stand-ins in place of arrays. Raises UsageError for what no recipe can say, and
    for a function that does not take so many trees or does not return a tree; what the function itself
    raises passes on unchanged.
    """
    about = described(function)
    recorder = ArrayRecorder()
    given = dict(zip(source_names(function, about.label, len(sources)), sources, strict=True))
    origins: dict[str, Origins] = {name: {} for name in given}
    arguments = [_stand_ins(given[name], name, recorder, origins[name]) for name in given]
    with tracing(recorder, function):
        result = function(*arguments)
    live = live_tree(result)
    if not any(leaf.key.names for leaf in live.leaves.values()):
        raise UsageError(
            f"{about.label} returns an object of type {type(result).__name__}, not a tree with leaves",
            hint="Return a dict, or another pytree, of the leaves that the result has.",
        )
    listings = {name: original.leaves for name, original in given.items()}
    rules = _Assembly(listings, origins, about.label, recorder).rules_of(live)
    document: dict[str, Any] = {"version": 1}
    document |= {"sources": list(given)} if len(given) > 1 else {}
    document |= {"input": {"uint16": uint16}} if uint16 else {}
    document |= {"unmatched": "drop", "target": {"missing": "fallback"}, "rules": rules}
    narrowed = [  # unlike in NumPy
        Notice("", key, f" is {wide}, with which JAX computes in {narrow}: `jax_enable_x64` is off")
        for key, (wide, narrow) in recorder.narrowed.items()
    ]
    # Empty nodes stay the function's own.
    kept = [text for text, leaf in live.leaves.items() if leaf.kind not in VALUELESS]
    facts = replace(
        about,
        keys=frozenset(live.leaves),
        warnings=tuple(sentences(narrowed)),
        unwritable=tuple(_dicts_for_lists(sources[:1], live.leaves.values())),
        rebuilt=lambda values: live.rebuilt({text: values[text] for text in kept if text in values}),
    )
    return MigratedRecipe(document, recorder.hooks, dict.fromkeys(range(len(rules)), about.name), facts)


@contextmanager
def tracing(recorder: ArrayRecorder, *functions: Any) -> Iterator[None]:
    """Record operations on stand-ins within this context, in these functions and in those that they call.

    Raises UsageError for what no expression says, also if the functions hide it.
    """
    with replaced(*functions):
        try:
            yield
        except Untraceable:
            raise recorder.problem() from None
        except Exception as error:
            innermost = traceback.extract_tb(error.__traceback__)[-1]
            of_library = is_library(innermost.filename) and StandIn.__name__ in str(error)
            if recorder.flaw is None and not of_library:
                raise
            recorder.refused(f"it calls a library that does not take its arrays: {error}")
            recorder.place = user_place(error) or recorder.place
            raise recorder.problem() from error
    if recorder.flaw is not None:  # which the function has hidden
        raise recorder.problem()


def _dicts_for_lists(sources: Sequence[Original], returned: Iterable[Leaf]) -> Iterator[str]:
    """Yield the keys of leaves in dicts that have numbers as keys, where these sources have lists."""
    lists = list_paths(leaf.key for source in sources for leaf in source.leaves.values())
    for key in (leaf.key for leaf in returned) if lists else ():
        components = enumerate(zip(key.names, key.sequences, strict=True))
        if any(key.names[:i] in lists and name.isdecimal() and not index for i, (name, index) in components):
            yield key.text


def described(function: Callable[..., Any]) -> TracedFunction:
    """Describe a function by name and place, for messages."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    name = getattr(inner, "__qualname__", type(inner).__qualname__).rpartition("<locals>.")[2]
    is_function = hasattr(inner, "__code__")
    code = getattr(inner if is_function else vars(type(inner)).get("__call__"), "__code__", None)
    title = f"`{shown(name)}`"
    if not isinstance(code, CodeType):
        return TracedFunction(title, title, frozenset())
    path = shown(code.co_filename.removeprefix(os.path.join(os.getcwd(), "")))
    return TracedFunction(title, f"{path}:{code.co_firstlineno}", frozenset())


def source_names(function: Callable[..., Any], label: str, count: int) -> list[str]:
    """Names of the sources: the arguments', if valid. Raises UsageError for another number of arguments."""
    names: list[str] = []
    try:
        signature = inspect.signature(function)
        signature.bind(*range(count))
        kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [p.name for p in signature.parameters.values() if p.kind in kinds][:count]
    except ValueError:  # of a function that is not written in Python
        pass
    except TypeError as error:
        given = "1 source is" if count == 1 else f"{count} sources are"
        raise UsageError(
            f"{label} takes one tree for each source, and {given} given: {error}",
            hint="Give as many checkpoints as it takes trees; `functools.partial` sets other arguments.",
        ) from None
    if count == 1:
        return [SOURCE]
    if len(names) == count and not any(name_problem(name, {}, subscripted=True) for name in names):
        return names
    return [f"{SOURCE}_{number}" for number in range(1, count + 1)]


Origins = dict[int, tuple[Any, Leaf]]
"""Texts and empty nodes in an argument, and their leaves, by the identity of the object."""


def _stand_ins(original: Original, name: str, recorder: ArrayRecorder, origins: Origins) -> Any:
    """Build the argument for one source, in new containers, which the function may change."""
    values: dict[str, Any] = {}
    for text, leaf in original.leaves.items():
        if leaf.kind in NUMERIC:
            library = JAX if original.on_devices(text) else NUMPY
            values[text] = source_stand_in(name, leaf, recorder, library)
            continue
        held = original.held(text)
        values[text] = copy.copy(held) if isinstance(held, dict | list) else held
        if leaf.kind in VALUELESS and held is not None:
            origins.setdefault(id(values[text]), (values[text], leaf))
    return original.rebuilt(values)


@dataclass(frozen=True, eq=False)
class _Assembly:
    """Turns the leaves that a function returns into rules."""

    listings: Mapping[str, Mapping[str, Leaf]]
    """Leaves of each source, by name."""
    origins: Mapping[str, Origins]
    label: str
    """The function, for messages."""
    recorder: ArrayRecorder

    def rules_of(self, live: LiveTree) -> list[Rule]:
        """Make the rules for these leaves. Raises UsageError with all leaves that no recipe can produce."""
        places = defaultdict[tuple[str, str], list[KeyMove]](list)
        for text, leaf in live.leaves.items():
            if (origin := self._origin(leaf, live.values[text])) is not None:
                source, own = origin
                places[source, own.key.text].append(KeyMove(source, own, leaf.key))
        moves = [
            move
            for group in places.values()
            for move in (group if group[0].leaf.kind is LeafKind.PRNG_KEY else [max(group, key=_likeness)])
        ]
        moved = {move.to.text for move in moves}
        left = {text: leaf for text, leaf in live.leaves.items() if text not in moved}
        rules = {text: self._rule(leaf, live.values[text]) for text, leaf in left.items()}
        lacking = [text for text, rule in rules.items() if rule is None]
        if lacking:
            problems = [self._refused(left[text], live.values[text]) for text in lacking[:MOST_NAMED]]
            more = [Problem(f"{len(lacking) - MOST_NAMED:,} more like these", hint=_LEAVES)]
            raise UsageError(*problems, *(more if len(lacking) > MOST_NAMED else ()))
        return [*move_rules(moves, self.listings), *filter(None, rules.values())]

    def _origin(self, leaf: Leaf, value: Any) -> tuple[str, Leaf] | None:
        """Source and leaf of a value that is only moved: a stand-in, a text, an empty node; else None."""
        match value._node if isinstance(value, StandIn) else None:
            case ast.Subscript(ast.Name(name), ast.Constant(str(text))) if name in self.listings:
                own = self.listings[name].get(text)
                return None if own is None else (name, own)
            case ast.expr():
                return None
        for name, leaves in self.listings.items():
            _, origin = self.origins[name].get(id(value), (None, None))
            for own in filter(None, (leaves.get(leaf.key.text), origin)):
                if own.kind in VALUELESS and _form(own) == _form(leaf):
                    return name, own
        return None

    def _rule(self, leaf: Leaf, value: Any) -> Rule | None:
        """Make the rule for a leaf that is computed or repeated; None if no recipe can produce it."""
        if value is ...:
            return {"fill": escaped(leaf.key.text), "fallback": True}
        node = value._node if isinstance(value, StandIn) else self.recorder.literal(leaf, value)
        if node is None:
            return None
        text = ast.unparse(node)
        if len(text) > MAX_TEXT:
            raise UsageError(
                f"{self.label} computes `{shown(leaf.key.printed)}` in an expression of {len(text):,} "
                f"characters; {MAX_TEXT:,} are the limit",
                hint="Do it in a function that is called when the leaf is made: `ckpt_surgery.opaque`.",
            )
        return {"add": template_of(leaf.key), "value": text}

    def _refused(self, leaf: Leaf, value: Any) -> Problem:
        """The problem of a leaf that no recipe can produce."""
        at = f"at `{shown(leaf.key.printed)}`"
        if leaf.kind is LeafKind.PRNG_KEY:
            message = f"{self.label} returns a typed PRNG key {at}, which it has made itself"
            return Problem(message, hint=_OWN_KEYS)
        what = f"an object of type {type(value).__module__}.{type(value).__qualname__}"
        return Problem(f"{self.label} returns {what} {at}", hint=_LEAVES)


def _form(leaf: Leaf) -> tuple[LeafKind, str | None, str | None]:
    """Properties that tell texts and empty nodes apart. Nodes that are restored as None count as None."""
    empty = leaf.empty if leaf.empty in (None, *EMPTY_NODES) else "None"
    return leaf.kind, leaf.string, empty


def _likeness(move: KeyMove) -> tuple[bool, int]:
    """Sort key of the places of one source leaf: it is moved to the one with the most similar key."""
    pairs = zip(reversed(move.leaf.key.names), reversed(move.to.names), strict=False)
    common = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return move.to.text == move.leaf.key.text, sum(1 for _ in common)


_OWN_KEYS = (
    "Return a key of the checkpoint, or the numbers of this one, `jax.random.key_data(key)`, of which "
    "`jax.random.wrap_key_data` makes a key again; `...` asks for the target's key."
)
_LEAVES = (
    "Leaves are what the function is given and what it computes of it, arrays of NumPy and JAX, numbers, "
    "texts and None; `...` asks for the target's value."
)


def with_flat_dicts(recipe: Any, flat: bool) -> Any:
    """Wrap a function of flat dicts as one of trees, if `flat`. Raises UsageError if it is no function."""
    if flat and (not callable(recipe) or isinstance(recipe, str)):
        raise UsageError(
            "`flat=True` says what a function gets and returns, and the recipe is not a function",
            hint="Leave out `flat=True`.",
        )
    return OnFlatDicts(recipe) if flat else recipe


class OnFlatDicts:
    """Wraps a function of flat dicts `{"a/b": leaf}`, to be called with trees."""

    def __init__(self, function: Callable[..., Any]):
        functools.update_wrapper(self, function)
        self.func = function

    def __call__(self, *trees: Any) -> Any:
        """Call the function with the leaves of each tree, and build a tree of the returned leaves.

        The result has nested dicts, with lists where the trees have lists at the same keys; it is a flat dict
        where the trees are. Raises UsageError if the function does not return a flat dict.
        """
        listed = [live_tree(tree) for tree in trees]
        returned = self.func(*(dict(tree.values) for tree in listed))
        _check(returned)
        split = {text: tuple(text.split(SEPARATOR)) for text in returned}
        if all(map(_is_flat, listed)):
            by_tuples = all(() in tree.tuple_dicts for tree in listed)
            return {split[text] if by_tuples else text: value for text, value in returned.items()}
        members = defaultdict[tuple[str, ...], set[str]](set)
        for names in split.values():
            for i, name in enumerate(names):
                members[names[:i]].add(name)
        lists = {
            names
            for names in list_paths(leaf.key for tree in listed for leaf in tree.leaves.values())
            if members[names] == set(map(str, range(len(members[names]))))
        }
        keys = {
            t: Key(names, tuple(names[:i] in lists for i in range(len(names)))) for t, names in split.items()
        }
        return nested((keys[text], value) for text, value in returned.items())


def _is_flat(tree: LiveTree) -> bool:
    """True for a dict whose keys are whole paths."""
    keys = [leaf.key for leaf in tree.leaves.values()]
    return all(len(key.names) == 1 for key in keys) and any(SEPARATOR in key.text for key in keys)


def _check(returned: Any) -> None:
    """Raise UsageError unless a function returned a flat dict, with keys that fit into one tree."""
    others = [key for key in returned if not isinstance(key, str)] if isinstance(returned, Mapping) else []
    if others or not isinstance(returned, Mapping):
        what = f"a dict with the key {shown(abridged(others[0]))}" if others else shown(abridged(returned))
        hint = 'With `flat=True` it has to return `{"a/b": leaf}`.'
        raise UsageError(f"the function returns {what}, which is not a flat dict", hint=hint)
    problems = []
    for key in returned:
        prefixes = itertools.accumulate(key.split(SEPARATOR)[:-1], lambda above, name: f"{above}/{name}")
        if (container := next((prefix for prefix in prefixes if prefix in returned), None)) is not None:
            both = f"`{shown(container)}`, and below it `{shown(key)}`"
            message = f"the function returns {both}: a leaf cannot have others inside"
            problems.append(Problem(message, hint="Rename one of them."))
    if problems:
        raise UsageError(*problems)
