"""Configs, subscripts and attributes, look-ups of what may be missing, functions of regular expressions.

A config is the JSON beside a checkpoint that describes its model: `config` in expressions, and values of
params. It is read when it is first used. An entry that is null counts as missing, which is what null means in
the config files of models.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import EllipsisType
from typing import Any

import regex

from ckpt_surgery.core.errors import Code, FunctionError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.language.expressions.scope import (
    Groups,
    Leaves,
    Lookup,
    Scope,
    bounded,
    described,
    is_list,
    looked_up,
    series_hint,
)

SEPARATOR = "/"  # Separates the names of a path: `text_config/num_hidden_layers`
RECORDED = "ckpt_surgery/recipes"
"""Path of the record of earlier conversions: the params of a recipe are at `RECORDED/NAME/params`."""
MISSING = object()  # Stands for an entry that is missing or null


class Entries(Lookup):
    """A JSON object, as expressions see it."""

    def __init__(self, name: str, values: Mapping[str, Any]):
        """`name`: the expression for the object, `config['rope_scaling']`. `values`: its entries."""
        self.name = name
        self.values = values

    @property
    def about(self) -> str:
        """Subject of the message for a missing entry."""
        return f"`{self.name}`"

    def __len__(self) -> int:
        return len(self.values)

    def entry(self, key: object) -> Any:
        """The entry of this key, None if it is null. Raises FunctionError, with a close match, if missing."""
        if not isinstance(key, str):
            raise FunctionError(f"the entries of `{self.name}` have names; look them up by text")
        if key not in self.values:
            raise FunctionError(
                f"{self.about} has no entry {key!r}{did_you_mean(key, self.values)}",
                hint="has(…) tells whether there is one; get(…, default) gives the default if there is none.",
                code=Code.NO_ENTRY,
            )
        return _seen(self.values[key], f"{self.name}[{key!r}]")

    def has(self, key: object) -> bool:
        """Whether there is an entry of this key that is not null."""
        return isinstance(key, str) and self.values.get(key) is not None


def _seen(value: Any, name: str) -> Any:
    """A JSON value as expressions see it."""
    if isinstance(value, Mapping):
        return Entries(name, value)
    if isinstance(value, list):
        return [_seen(item, f"{name}[{i}]") for i, item in enumerate(value)]
    return value


@dataclass(frozen=True)
class Layer:
    """One JSON object that a config is made of."""

    origin: str  # Name for messages: `config.json`
    entries: Mapping[str, Any]  # Entries of the object
    of_model: bool = True  # Whether the object describes the model. Custom metadata can be anything.


class Config(Entries):
    """The config of one source: layers of JSON objects. The first layer that has an entry gives its value."""

    def __init__(self, name: str, absent: str, load: Callable[[], Sequence[Layer]]):
        """`name` is the name in expressions. `absent` is the message for a source without a config.
        `load` reads the layers, and may raise SourceError.
        """
        self.name = name
        self._absent = absent
        self._load = load

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that have entries. Raises SourceError if one is damaged."""
        return tuple(layer for layer in self._load() if layer.entries)

    @cached_property
    def values(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The entries of all layers. Raises SourceError if one is damaged."""
        return ChainMap(*(dict(layer.entries) for layer in self.layers))

    @property
    def about(self) -> str:
        """Subject of the message for a missing entry."""
        return self._of_model or f"{self._absent}, and so `{self.name}`"

    @property
    def _of_model(self) -> str | None:
        """The origin of the first layer that describes the model, or None."""
        return next((layer.origin for layer in self.layers if layer.of_model), None)

    def value_at(self, path: str) -> tuple[Any, str] | None:
        """The value at the path `a/b/c`, and the origin of its layer; None if it is missing or null.

        A number in the path is an index if the value above it is a list.
        """
        names = path.split(SEPARATOR)
        value: Any = self
        for name in names:
            at_list = isinstance(value, list) and name.isascii() and name.isdigit()
            value = reached(value, int(name) if at_list else name)
        if value is MISSING:
            return None
        return value, next(layer.origin for layer in self.layers if names[0] in layer.entries)

    def without(self, paths: Sequence[str]) -> str:
        """The message for a config that has none of these paths.

        Where all of them are in the record of an earlier conversion, it names that record, and no path.
        """
        if all(path.startswith(f"{RECORDED}{SEPARATOR}") for path in paths):
            recipes = sorted({path.split(SEPARATOR)[2] for path in paths})
            return f"no conversion by {' or '.join(recipes)} is recorded"
        if self._of_model is None:
            return self._absent
        known = [name for name, value in self.values.items() if value is not None]
        for name, value in self.values.items():
            known += [f"{name}{SEPARATOR}{inner}" for inner in value] if isinstance(value, Mapping) else []
        guess = next(filter(None, (did_you_mean(path, known[:MOST_PATHS]) for path in paths)), "")
        return f"{self._of_model} has no {' and no '.join(f'`{path}`' for path in paths)}{guess}"


MOST_PATHS = 1000  # Limit on the paths among which a close match is looked for


@dataclass(frozen=True)
class Configs(Lookup):
    """The configs of all sources by name, `configs['lora']`; the first source's comes first."""

    by_source: Mapping[str, Config]

    @property
    def first(self) -> Config:
        """The config of the first source: what `config` stands for."""
        return next(iter(self.by_source.values()), NOTHING)

    @property
    def description(self) -> str:
        return "the configs of the sources"

    def entry(self, key: object) -> Config:
        """The config of this source. Raises FunctionError if there is no such source."""
        if isinstance(key, str) and key in self.by_source:
            return self.by_source[key]
        guess = did_you_mean(str(key), self.by_source)
        raise FunctionError(f"no source is called {key!r}, so it has no config{guess}", code=Code.NO_ENTRY)

    def has(self, key: object) -> bool:
        """Whether this source has a config."""
        return isinstance(key, str) and key in self.by_source and bool(self.by_source[key].layers)


def reached(holder: Any, key: object) -> Any:
    """`holder[key]` of entries and lists; MISSING if it is missing or null, or the holder has no entries."""
    if isinstance(holder, list):
        value = holder[key] if type(key) is int and -len(holder) <= key < len(holder) else None
    elif isinstance(holder, Entries | Configs):
        value = holder.entry(key) if holder.has(key) else None
    else:
        value = None
    return MISSING if value is None else value


NOTHING = Config("config", "no config can be read here", lambda: ())
"""Config used where there is no checkpoint."""
NO_CONFIGS = Configs({})


def has(holder: Any, key: Any) -> bool:
    """Whether there is such a leaf, or such an entry that is not null."""
    if isinstance(holder, Leaves):
        return key_text(holder, key) in holder.keys()  # noqa: SIM118 - not a mapping
    return _entry(holder, key, "has") is not MISSING


def kind(holder: Any, key: Any) -> str:
    """The kind of a leaf. Raises FunctionError if there is no such leaf."""
    if not isinstance(holder, Leaves):
        raise FunctionError(f"`kind` looks into a source or the target, not {described(holder)}")
    return looked_up(holder, key_text(holder, key), holder.kind)


def get(holder: Any, key: Any, default: Any) -> Any:
    """The array of a leaf, or an entry; the default if it is missing or null."""
    if isinstance(holder, Leaves):
        return subscripted(holder, key) if has(holder, key) else default
    entry = _entry(holder, key, "get")
    return default if entry is MISSING else entry


def within(holder: Any, key: Any) -> Any:
    """The holder `holder[key]` that a further key is looked up in, or MISSING if it holds no entries."""
    entry = _entry(holder, key, "has")
    return entry if isinstance(entry, _HOLDERS) else MISSING


_HOLDERS = (Configs, Entries, list)


def _entry(holder: Any, key: Any, function: str) -> Any:
    if holder is MISSING or isinstance(holder, _HOLDERS):
        return reached(holder, key)
    raise FunctionError(f"`{function}` looks into a source, the target or a config, not {described(holder)}")


LOOKUPS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "has": (has, "source['a/b']"),
    "kind": (kind, "source['a/b']"),
    "get": (get, "source['a/b'], default"),
}
"""Functions whose first argument is a look-up, which is not evaluated before the call; their arguments."""


def counted(budget: MatchBudget, scope: Scope, pattern: Any) -> int:
    """The value of `count('regex')`."""
    if not isinstance(pattern, str):
        raise FunctionError(f"`count` takes a regular expression as text, not {described(pattern)}")
    if scope.count is None:
        raise FunctionError("`count` has no keys to count here")
    return scope.count(pattern)


def substituted(budget: MatchBudget, scope: Scope, text: Any, pattern: Any, replacement: Any) -> str:
    """The value of `sub(text, 'regex', 'replacement')`."""
    for value in (text, pattern, replacement):
        if not isinstance(value, str):
            raise FunctionError(f"`sub` takes three texts, not {described(value)}")
    try:
        replace = partial(compile_pattern(pattern).sub, replacement)
        replaced: str = bounded(budget.limited(replace, text))
    except (regex.error, IndexError) as error:
        raise FunctionError(f"`sub`: the replacement {replacement!r} does not fit: {error}") from None
    return replaced


WITH_PATTERNS: Mapping[str, tuple[Sequence[str], str, Callable[..., Any]]] = {
    "count": (("regex",), "one regular expression: count('regex')", counted),
    "sub": (("text", "regex", "replacement"), "three texts: sub(text, 'regex', 'replacement')", substituted),
}
"""Functions of a regular expression: parameters, usage, and action."""


def subscripted(value: Any, index: Any) -> Any:
    """The value of `value[index]`; `index` is a tuple if the subscript has a comma."""
    if isinstance(value, Array):
        for item in index if isinstance(index, tuple) else (index,):
            _check_item(item)
        return value[index]
    if isinstance(value, Lookup):
        return value.entry(index)
    if isinstance(value, Groups):
        return value.text(index)
    if isinstance(value, Series):
        return _element(list(require_no_gaps(value)), index)
    if isinstance(value, str | list | tuple | range):
        return _element(value, index)
    if isinstance(value, Leaves):
        return looked_up(value, key_text(value, index), value.lookup)
    raise FunctionError(f"{described(value)} has no elements")


def key_text(leaves: Leaves, index: Any) -> str:
    """The key in `leaves[key]`. Raises FunctionError if it is not text."""
    if not isinstance(index, str):
        raise FunctionError(f"the key in `{leaves.name}[…]` has to be text, not {described(index)}")
    return index


def _check_item(item: Any) -> None:
    """Raises FunctionError for an item of a subscript that no array takes."""
    if isinstance(item, slice):
        for bound in (item.start, item.stop, item.step):
            if bound is not None and type(bound) is not int:
                raise FunctionError(f"the bounds of a slice have to be integers, not {described(bound)}")
    elif not (item is None or isinstance(item, EllipsisType) or type(item) is int):
        hint = "take(x, [0, 2], axis) takes several elements." if is_list(item) else None
        raise FunctionError(f"an array is not indexed with {described(item)}", hint=hint)


def _element(values: Any, index: Any) -> Any:
    if isinstance(index, slice):
        if index.step == 0:
            raise FunctionError("the step of a slice cannot be 0")
        _check_item(index)
        return values[index]
    if type(index) is not int:
        raise FunctionError(f"{described(values)} is indexed with an integer, not {described(index)}")
    if not -len(values) <= index < len(values):
        raise FunctionError(f"index {index} is out of bounds for {described(values)}")
    return values[index]


ATTRIBUTES = ("T", "shape", "dtype", "ndim", "size")


def attribute(value: Any, name: str) -> Any:
    """The value of `value.name`. Raises FunctionError for anything but an array."""
    if not isinstance(value, Array):
        hint = series_hint(value) and "xs[0] is the first of them."
        raise FunctionError(f"`.{name}` is for arrays, not {described(value)}", hint=hint)
    return value.dtype.name if name == "dtype" else getattr(value, name)
