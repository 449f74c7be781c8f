"""The base class of results that can be as large as a checkpoint, and are shown in a few lines."""

import importlib
from abc import ABC, abstractmethod
from typing import Any

from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.core.summaries.summary import Summary, summary_html, summary_text


class Represented(ABC):
    """Short in a terminal (`repr`) and in a notebook. Dataclasses of it are made with `repr=False`."""

    __slots__ = ()

    @abstractmethod
    def _summary(self) -> Summary:
        """Summary for both forms; made on each display, from data in memory alone."""

    def __repr__(self) -> str:
        with without_collection():
            return summary_text(type(self).__name__, self._summary())

    def _repr_html_(self) -> str:
        with without_collection():
            return summary_html(type(self).__name__, self._summary())


def from_above(module: str, name: str) -> Any:
    """A function of a wing that stands above the caller's, imported when it is used.

    Plans and checkpoints are values of low wings; how they are shown is the business of wings above, which
    know them. Whoever calls this is listed in tests/test_layers.py, as an import in the other direction.
    """
    return getattr(importlib.import_module(f"ckpt_surgery.{module}"), name)
