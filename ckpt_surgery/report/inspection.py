"""What `inspect` finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.core.arguments import SortBy
from ckpt_surgery.core.history import History
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.summaries.represented import Represented
from ckpt_surgery.core.summaries.summary import Summary
from ckpt_surgery.core.text import chosen_text
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.listing_summary import listing_summary
from ckpt_surgery.report.scalars import Values, shared_texts
from ckpt_surgery.report.tree import SubtreeTotal, parameters, subtrees
from ckpt_surgery.report.unusual import Unusual, unusual


@dataclass(frozen=True, repr=False)
class Inspection(Represented):
    """Result of `inspect`."""

    path: str
    """Path as the caller gave it."""
    format: str
    """Name of the format."""
    step: int | None
    """The step that was chosen; None where the checkpoint is not one of several steps."""
    item: str | None
    """The item that was chosen; None where the checkpoint is not composite."""
    metadata: Mapping[str, Any]
    """The user's custom metadata."""
    leaves: tuple[Leaf, ...]
    """Every leaf that was asked for, in the checkpoint's order, or sorted."""
    statistics: Mapping[str, Statistics | Unread] | None = None
    """Statistics by key text, of every leaf with an array; None where no values were read."""
    values: Values = field(default_factory=dict)
    """Values by key text, of the first arrays without axes."""
    others: int = 0
    """Number of leaves that were not asked for."""
    choices: Choices = field(default_factory=Choices)
    """The steps and items that there are."""
    depth: int | None = None
    """Number of components of the longest keys of subtrees; None: any."""
    sort: SortBy | None = None
    """Sort order of the leaves; None: the checkpoint's own."""
    warnings: tuple[str, ...] = ()
    """Warnings about probable mistakes in the checkpoint, or beside it."""
    history: History | None = None
    """How it was made by this tool; None where nothing says so."""

    @property
    def parameters(self) -> int:
        """Number of the model's parameters: elements of all arrays but optimizer states and counters."""
        return parameters(self.leaves)

    @property
    def stored_types(self) -> Mapping[str, str]:
        """Names of the quantized types, such as `Q4_K`, that leaves are stored in, by key text."""
        return {leaf.key.text: leaf.stored_type for leaf in self.leaves if leaf.stored_type is not None}

    @property
    def subtrees(self) -> tuple[SubtreeTotal, ...]:
        """The number of leaves, of elements and of bytes below each part of a key with `depth` components."""
        return subtrees(self.leaves, self.depth)

    @property
    def unusual(self) -> tuple[Unusual, ...] | None:
        """Leaves with NaN or infinities, of zeros alone, or of mixed dtypes; None without statistics."""
        return None if self.statistics is None else unusual(self.leaves, self.statistics)

    def _summary(self) -> Summary:
        about = f"{self.path} ({chosen_text(self.format, self.step, self.item)})"
        texts = shared_texts(self.leaves, self.values)
        return listing_summary(about, self.leaves, texts, self.others, self.warnings)
