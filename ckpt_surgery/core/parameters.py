"""Tells a model's parameters from what a training state has beside them, by the names of keys."""

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.leaves import Leaf, LeafKind

OPTIMIZER = frozenset(
    {"opt_state", "opt_states", "optim_state", "optimizer", "optimizer_state", "optimizer_states"}
    | {"param_states", "mu", "nu", "v_row", "v_col"}
)
"""Components of keys that the states of optimizers are below: names of Optax, Flax, T5X and PyTorch."""
COLLECTIONS = frozenset({"flax_mutables", "batch_stats", "cache", "intermediates", "params_axes", "nnx_aux"})
"""Components of keys that the variables which are not trained are below: names of T5X, Flax and MaxText. They
are beside `params`; below it they are names of modules."""
_TELLING = OPTIMIZER | COLLECTIONS
PARAMS = "params"
COUNTERS = frozenset(DTYPES[name] for name in ("bool", "int32", "int64", "uint32", "uint64"))
"""Dtypes of counters, masks and indices; narrower integers can be quantized weights."""


def is_parameter(leaf: Leaf) -> bool:
    """Whether a leaf is an array that is trained, and not an optimizer's state, a statistic or a counter."""
    if leaf.kind is not LeafKind.ARRAY or leaf.spec is None or leaf.spec.dtype in COUNTERS:
        return False
    names = leaf.key.names
    if _TELLING.isdisjoint(names):
        return True
    beside = names[: names.index(PARAMS)] if PARAMS in names else names
    return not is_of_optimizer(leaf) and COLLECTIONS.isdisjoint(beside)


def is_of_optimizer(leaf: Leaf) -> bool:
    """Whether a leaf belongs to an optimizer's state, which a layer `mu` below `params` does not."""
    known = (name in OPTIMIZER for name in leaf.key.names if name in OPTIMIZER or name == PARAMS)
    return next(known, False)
