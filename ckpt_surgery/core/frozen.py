"""The decorator of frozen classes with many instances: one or several for each leaf of a checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

from ckpt_surgery.core.text import brief

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """A dataclass with slots that the type checker treats as frozen.

    It is not checked at run time: that would triple the time of creating an instance, and a plan of 45,000
    leaves creates half a million. With `eq=False` instances are equal only if they are the same object.
    Their representation is short, whatever their fields hold.
    """

    def decorated(cls: type[T]) -> type[T]:
        if "__repr__" not in vars(cls):
            cls.__repr__ = brief  # type: ignore[method-assign]
        return dataclass(eq=eq, unsafe_hash=eq, slots=True)(cls)

    return decorated
