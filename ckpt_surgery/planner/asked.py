"""What leaves of a target ask for where they leave kind, shape or dtype to the source."""

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    from ckpt_surgery.planner.entries import Entry
    from ckpt_surgery.planner.problems import Problems

PLACEHOLDER = "placeholder"
"""Why a leaf is dropped for which the target has `...`, and which no rule claims."""


@frozen()
class Asked:
    """What a leaf of a target takes. Its shape is that of the target's leaf; without a `spec` there, any."""

    kinds: Set[LeafKind]
    """Kinds of leaves that it takes."""
    dtype: DType | None = None
    """Dtype that `dtype: target` casts to, where the target's leaf has no `spec`; None: the value's own."""
    is_placeholder: bool = False
    """True for `...`: it gets a value only if a rule claims its key, and is left as it is otherwise."""


def note_subtrees(problems: "Problems", placeholders: Set[str], entries: "Iterable[Entry]") -> None:
    """Note placeholders under whose key leaves lie: `...` stands for a leaf.

    `entries`: those that the source has and that rules make, as far as no rule drops them.
    """
    from ckpt_surgery.planner.problems import MANY  # imports what reads recipes; targets are listed without

    if not placeholders:
        return
    inner: dict[str, list[str]] = {}
    for entry in entries:
        names = entry.key.names
        for i in range(len(names)):
            if (container := SEPARATOR.join(names[:i])) in placeholders:
                inner.setdefault(container, []).append(entry.key.printed)
    for container, keys in inner.items():
        lie = "1 leaf lies" if len(keys) == 1 else f"{len(keys):,} leaves lie"
        message = f"the target has `...` at `{shown(container)}`, and {lie} below it: {few_keys(keys, MANY)}"
        problems.general(Problem(message, None, _AT_LEAVES, Code.TARGET_MISFIT))


_AT_LEAVES = "Write `...` for each of these leaves, or leave the whole subtree out of the target."
