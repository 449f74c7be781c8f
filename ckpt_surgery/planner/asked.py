"""Constraints of target leaves that leave kind, shape or dtype to the source."""

from collections.abc import Set

from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import LeafKind

PLACEHOLDER = "placeholder"
"""Why a leaf is dropped for which the target has `...`, and which no rule claims."""


@frozen()
class Asked:
    """Kinds and dtype that a leaf of a target accepts.

    Its shape is that of the target's leaf; without a `spec` there, any.
    """

    kinds: Set[LeafKind]
    """Kinds of leaves that it takes."""
    dtype: DType | None = None
    """Dtype that `dtype: target` casts to, where the target's leaf has no `spec`; None: the value's own."""
    is_placeholder: bool = False
    """True for `...`: it gets a value only if a rule claims its key, and is left as it is otherwise."""
