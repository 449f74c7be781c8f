"""What a checkpoint says about its model as JSON: `config` in expressions, and where params come from.

A config is read when it is first asked for. An entry that is null counts as one that is not there: that is
what null means in the files that models come with.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.scope import Lookup

SEPARATOR = "/"
"""Between the names of a path: `text_config/num_hidden_layers`."""
MISSING = object()
"""Stands for an entry that is not there, or is null."""


@dataclass(frozen=True)
class Entries(Lookup):
    """A JSON object, as expressions see it."""

    name: str
    """How it is spelled: `config['rope_scaling']`."""
    values: Mapping[str, Any]
    about: str = ""
    """What is said of it where an entry is missing; empty: its name."""

    @property
    def told(self) -> str:
        return f"the entries of `{self.name}`"

    def __len__(self) -> int:
        return len(self.values)

    def entry(self, key: object) -> Any:
        """The entry of this key, None where it is null. Raises FunctionError, with a close match."""
        if not isinstance(key, str):
            raise FunctionError(f"the entries of `{self.name}` have names: they are looked up by text")
        if key not in self.values:
            raise FunctionError(
                f"{self.about or f'`{self.name}`'} has no entry {key!r}{did_you_mean(key, self.values)}",
                hint="has(…) asks whether there is one; get(…, default) is the default where there is none.",
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

    origin: str
    """What people call it: `config.json`."""
    entries: Mapping[str, Any]
    of_model: bool = True
    """Whether it is there to say what the model is; custom metadata may be anything."""


@dataclass(frozen=True)
class Found:
    """A value of a config."""

    value: Any
    origin: str
    """Of the layer that has it."""


class Config(Lookup):
    """The config of one source: layers of JSON objects, of which the first that has an entry decides."""

    def __init__(self, name: str, absent: str, load: Callable[[], Sequence[Layer]]):
        """`name`: how expressions call it. `absent`: what is said where there is nothing to read.
        `load` may raise SourceError.
        """
        self.name = name
        self._absent = absent
        self._load = load

    @property
    def told(self) -> str:
        return f"the entries of `{self.name}`"

    def entry(self, key: object) -> Any:
        """The entry of this key, None where it is null. Raises FunctionError, with a close match."""
        return self.entries.entry(key)

    def has(self, key: object) -> bool:
        """Whether there is an entry of this key that is not null."""
        return self.entries.has(key)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Those that have entries. Raises SourceError where one is damaged."""
        return tuple(layer for layer in self._load() if layer.entries)

    @cached_property
    def entries(self) -> Entries:
        """All layers as one object. Raises SourceError where one is damaged."""
        merged = ChainMap(*(dict(layer.entries) for layer in self.layers))
        return Entries(self.name, merged, self._about)

    @property
    def _about(self) -> str:
        return f"{self._absent}, and so `{self.name}`" if self._of_model is None else self._of_model

    @property
    def _of_model(self) -> str | None:
        """What says what the model is; None where nothing does."""
        return next((layer.origin for layer in self.layers if layer.of_model), None)

    def found(self, path: str) -> Found | None:
        """The value at `a/b/c`, and where it comes from; None where there is none, or null.

        A number in the path is an index where there is a list.
        """
        names = path.split(SEPARATOR)
        value: Any = self.entries
        for name in names:
            at_list = isinstance(value, list) and name.isascii() and name.isdigit()
            value = reached(value, int(name) if at_list else name)
        if value is MISSING:
            return None
        return Found(value, next(layer.origin for layer in self.layers if names[0] in layer.entries))

    def without(self, paths: Sequence[str]) -> str:
        """What to say where none of these paths is there."""
        if self._of_model is None:
            return self._absent
        known = ["/".join(path) for path in _paths(self.entries.values)]
        guess = next(filter(None, (did_you_mean(path, known) for path in paths)), "")
        return f"{self._of_model} has no {' and no '.join(f'`{path}`' for path in paths)}{guess}"


MOST_PATHS = 1000
"""So many paths are looked at for a close match."""


def _paths(values: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Of an object, and of the objects in it."""
    found: list[tuple[str, ...]] = [(name,) for name, value in values.items() if value is not None]
    for name, value in values.items():
        found += [(name, inner) for inner in value] if isinstance(value, Mapping) else []
    return found[:MOST_PATHS]


@dataclass(frozen=True)
class Configs(Lookup):
    """`configs['lora']`: the configs of all sources by their names, the first source's first."""

    by_source: Mapping[str, Config]

    @property
    def first(self) -> Config:
        """What `config` stands for."""
        return next(iter(self.by_source.values()), NOTHING)

    @property
    def told(self) -> str:
        return "the configs of the sources"

    def entry(self, key: object) -> Config:
        """The config of this source. Raises FunctionError where there is no such source."""
        if isinstance(key, str) and key in self.by_source:
            return self.by_source[key]
        guess = did_you_mean(key, self.by_source) if isinstance(key, str) else ""
        raise FunctionError(f"there is no source {key!r} whose config could be asked for{guess}")

    def has(self, key: object) -> bool:
        """Whether this source has a config at all."""
        return isinstance(key, str) and key in self.by_source and bool(self.by_source[key].layers)


def reached(holder: Any, key: object) -> Any:
    """`holder[key]` of entries and lists; MISSING where there is none, or null, or nothing to look into."""
    if isinstance(holder, list):
        value = holder[key] if type(key) is int and -len(holder) <= key < len(holder) else None
    elif isinstance(holder, Entries | Config | Configs):
        value = holder.entry(key) if holder.has(key) else None
    else:
        value = None
    return MISSING if value is None else value


NOTHING = Config("config", "there is no config here", lambda: ())
"""Where there is no checkpoint."""
NO_CONFIGS = Configs({})
