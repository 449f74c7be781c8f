"""Leaves of a training state beside the parameters, and the forms that states of optimizers have.

Flax's state dicts and Orbax have the same trees, spelled differently. Flax turns tuples and lists into dicts
with the keys `0`, `1`, …, and named tuples without fields, such as `optax.EmptyState`, into empty dicts;
`from_state_dict` insists on both. Orbax keeps lists, and stores named tuples without fields as None. Only
within the state of an optimizer is it known which is meant: a dict with such keys elsewhere may well be one.

Source of the conventions: flax 0.12 (`flax.serialization`), orbax-checkpoint 0.12.8.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind

STATES = frozenset({"opt_state", "opt_states", "optimizer_state"})
"""Components of keys below which optimizers keep their states."""
DICTS = frozenset({"inner_states"})
"""Containers of Optax that are dicts whatever their keys are: those of `optax.multi_transform` are labels."""
Path = tuple[str, ...]


def as_state_dict(leaves: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """The leaves of an Orbax checkpoint as Flax restores them: None within an optimizer's state is `{}`."""
    return _with_empty(leaves, "None", "Dict")


def as_containers(leaves: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """The leaves of Flax's state dict as Orbax restores them.

    Within an optimizer's state `{}` is None, and a dict with the keys `0` to `n - 1` is a list, except inside
    subtrees that mirror the parameters: moments have the names of layers.
    """
    lists = _lists(leaves)
    known: dict[str, Leaf] = {}
    for text, leaf in leaves.items():
        key = leaf.key
        sequences = tuple(is_index or key.names[:i] in lists for i, is_index in enumerate(key.sequences))
        known[text] = replace(leaf, key=Key(key.names, sequences))
    return _with_empty(known, "Dict", "None")


def _with_empty(leaves: Mapping[str, Leaf], old: str, new: str) -> dict[str, Leaf]:
    """Change the kind of empty nodes within optimizers' states from `old` to `new`.

    A mirrored subtree keeps those that the parameters have too.
    """
    kept = {leaf.key.names for leaf in leaves.values() if leaf.empty == old and _root(leaf.key.names) is None}

    def is_changed(leaf: Leaf) -> bool:
        root = _root(leaf.key.names)
        below = leaf.key.names[len(root or ()) :]
        is_kept = any(below[-len(names) + 1 :] == names[1:] for names in kept if len(names) > 1)
        return leaf.empty == old and root is not None and not is_kept

    return {text: replace(leaf, empty=new) if is_changed(leaf) else leaf for text, leaf in leaves.items()}


def _root(names: Path) -> Path | None:
    """The key of the optimizer's state that a leaf belongs to; None for other leaves."""
    return next((names[: i + 1] for i, name in enumerate(names) if name in STATES), None)


def _lists(leaves: Mapping[str, Leaf]) -> Set[Path]:
    """The containers within optimizers' states that are lists.

    They have the keys `0` to `n - 1`. Containers of parameters, in subtrees with all their keys, are none.
    """
    below: dict[Path, list[Path]] = defaultdict(list)
    for names in (leaf.key.names for leaf in leaves.values()):
        for i in range(len(_root(names) or names), len(names)):
            below[names[:i]].append(names[i:])
    trees = {root: _parameters(root, leaves) for root in set(map(_root, below))}
    inner = ((path, keys) for path, keys in below.items() if path not in trees)
    mirrors = {path: _mirrored(keys, trees[_root(path)]) for path, keys in inner}
    lists: set[Path] = set()
    for path, keys in below.items():
        indices = {key[0] for key in keys}
        is_numbered = path[-1] not in DICTS and indices == set(map(str, range(len(indices))))
        if is_numbered and not any(path[i:] in mirrors.get(path[:i], ()) for i in range(len(path) + 1)):
            lists.add(path)
    return lists


def _parameters(root: Path | None, leaves: Mapping[str, Leaf]) -> Collection[Set[Path]]:
    """The subtrees beside an optimizer's state, such as `params`: the keys of their leaves within."""
    assert root is not None
    level = len(root)
    keys: dict[Path, set[Path]] = defaultdict(set)
    for leaf in leaves.values():
        names = leaf.key.names
        if names[: level - 1] == root[:-1] and names[:level] != root and len(names) > level:
            keys[names[:level]].add(names[level:])
    return keys.values()


def _mirrored(keys: Iterable[Path], trees: Iterable[Set[Path]]) -> Set[Path]:
    """The containers of the tree of parameters whose leaves are those of a container, if there is one.

    `keys`: those of its leaves within. They may lie below the keys of the tree's, and masked leaves are there
    as empty nodes.
    """
    for tree in trees:
        above = {next((key[:i] for i in range(1, len(key) + 1) if key[:i] in tree), None) for key in keys}
        if above == tree:
            return frozenset(key[:i] for key in tree for i in range(len(key)))
    return frozenset()


OPTIMIZER = frozenset(
    {"opt_state", "opt_states", "optim_state", "optimizer", "optimizer_state", "optimizer_states"}
    | {"param_states", "mu", "nu", "v_row", "v_col"}
)
"""Components of keys that the states of optimizers are below: names of Optax, Flax, T5X and PyTorch."""
COLLECTIONS = frozenset({"flax_mutables", "batch_stats", "cache", "intermediates", "params_axes", "nnx_aux"})
"""Components of keys that the variables which are not trained are below: names of T5X, Flax and MaxText. They
are beside `params`; below it they are names of modules."""
PARAMS = "params"
COUNTERS = frozenset(DTYPES[name] for name in ("bool", "int32", "int64", "uint32", "uint64"))
"""Dtypes of counters, masks and indices; narrower integers can be quantized weights."""


def is_parameter(leaf: Leaf) -> bool:
    """Whether a leaf is an array that is trained, and not an optimizer's state, a statistic or a counter."""
    if leaf.kind is not LeafKind.ARRAY or leaf.spec is None or leaf.spec.dtype in COUNTERS:
        return False
    names = leaf.key.names
    beside = names[: names.index(PARAMS)] if PARAMS in names else names
    return not is_of_optimizer(leaf) and COLLECTIONS.isdisjoint(beside)


def is_of_optimizer(leaf: Leaf) -> bool:
    """Whether a leaf belongs to an optimizer's state, which a layer `mu` below `params` does not."""
    return next((name != PARAMS for name in leaf.key.names if name in OPTIMIZER or name == PARAMS), False)
