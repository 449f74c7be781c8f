"""The primitives of the package."""

from collections.abc import Iterator

from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.registry import registry

PACKAGE = "ckpt_surgery.functions."


def primitives() -> set[type[Function]]:
    """Every class of primitives that values of plans can have; those of hooks apart."""
    registry()  # imports their modules
    return {
        cls for cls in _classes(Function) if cls.name and cls.__module__.startswith("ckpt_surgery.functions.")
    }


def _classes(cls: type[Function]) -> Iterator[type[Function]]:
    for child in cls.__subclasses__():
        yield child
        yield from _classes(child)
