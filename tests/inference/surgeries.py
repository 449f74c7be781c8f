"""Random surgeries: a tree of arrays, and what a few changes make of it, with NumPy alone."""

import re
from collections.abc import Callable
from typing import Any

import einops
import ml_dtypes
import numpy as np

Tree = dict[str, np.ndarray]
"""Arrays by key path."""
Change = Callable[[np.random.Generator, Tree], Tree]

WORDS = ("attn", "mlp", "norm", "gate", "up", "down", "query", "key", "value", "out", "head", "embed")
OTHER_WORDS = ("alpha", "beta", "gamma", "delta", "w1", "w2", "proj", "dense", "kernel", "scale")
SIZES = (2, 3, 4, 6, 8, 12)
DTYPES = (np.float32, np.float32, np.float32, ml_dtypes.bfloat16, np.float16, np.int32, np.float64)


def surgery(seed: int) -> tuple[Tree, Tree]:
    """A source, and a target that some changes make of it."""
    random = np.random.default_rng(seed)
    source = _source(random)
    target = dict(source)
    for _ in range(int(random.integers(1, 6))):
        change = CHANGES[int(random.integers(len(CHANGES)))]
        target = change(random, target)
    return source, {key: np.ascontiguousarray(array) for key, array in target.items()}


# --- sources ----------------------------------------------------------------------------------------------


def _source(random: np.random.Generator) -> Tree:
    tree: Tree = {}
    layers = int(random.integers(1, 6))
    style = _pick(random, ("layers/{}", "layers_{}", "block_{:03}", "h/{}"))
    names = random.permutation(WORDS)[: int(random.integers(1, 5))]
    specs = {name: (_shape(random), _pick(random, DTYPES)) for name in names}
    for i in range(layers):
        for name, (shape, dtype) in specs.items():
            tree[f"model/{style.format(i)}/{name}/w"] = _array(random, shape, dtype)
    for name in random.permutation(OTHER_WORDS)[: int(random.integers(0, 4))]:
        tree[f"model/{name}"] = _array(random, _shape(random), _pick(random, DTYPES))
    if random.random() < 0.3:
        moments = {f"opt/0/mu/{key}": _array(random, a.shape, np.float32) for key, a in tree.items()}
        tree |= moments
    return tree


def _shape(random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in random.choice(SIZES, int(random.integers(1, 4))))


def _array(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if random.random() < 0.12:  # as layer norms and fresh optimizers are
        return np.full(shape, float(random.integers(0, 2)), dtype)
    if np.dtype(dtype).kind == "i":
        return random.integers(-1000, 1000, shape).astype(dtype)
    if random.random() < 0.05:
        return (np.arange(int(np.prod(shape))) % 4).reshape(shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def _pick(random: np.random.Generator, among: Any) -> Any:
    return among[int(random.integers(len(among)))]


# --- changes ----------------------------------------------------------------------------------------------


def _families(tree: Tree) -> dict[str, list[tuple[int, str]]]:
    """The keys by their outline, with their first number: those of equal shapes and dtypes, two or more."""
    families: dict[str, list[tuple[int, str]]] = {}
    for key in tree:
        match = re.search(r"(?<=[/_])\d+(?=/)", key.replace("opt/0/", "opt/_/"))
        if match:
            families.setdefault(key[: match.start()] + "{}" + key[match.end() :], []).append(
                (int(match[0]), key)
            )
    alike = {}
    for outline, members in families.items():
        if len(members) > 1 and len({(tree[k].shape, tree[k].dtype) for _, k in members}) == 1:
            alike[outline] = sorted(members)
    return alike


def _rename(random: np.random.Generator, tree: Tree) -> Tree:
    """Another word for a component, everywhere."""
    words = sorted({part for key in tree for part in key.split("/")})
    old, new = _pick(random, words), f"{_pick(random, OTHER_WORDS)}x"
    return {"/".join(new if part == old else part for part in key.split("/")): a for key, a in tree.items()}


def _stack(random: np.random.Generator, tree: Tree) -> Tree:
    """Layers become one array."""
    out = dict(tree)
    axis_seed = int(random.integers(0, 3))
    for outline, members in _families(tree).items():
        if random.random() < 0.7:
            arrays = [out.pop(key) for _, key in members]
            axis = axis_seed % (arrays[0].ndim + 1)
            out[outline.replace("{}", "all")] = np.stack(arrays, axis)
    return out


def _stack_reversed(random: np.random.Generator, tree: Tree) -> Tree:
    """Layers in an odd order become one array."""
    out = dict(tree)
    for outline, members in list(_families(tree).items())[:1]:
        arrays = [out.pop(key) for _, key in members]
        order = random.permutation(len(arrays))
        out[outline.replace("{}", "mixed")] = np.stack([arrays[i] for i in order])
    return out


def _unstack(random: np.random.Generator, tree: Tree) -> Tree:
    """An array becomes one leaf for each index of an axis."""
    out = dict(tree)
    key = _pick(random, sorted(tree))
    array = tree[key]
    if array.ndim and array.shape[axis := int(random.integers(array.ndim))] > 1:
        del out[key]
        for i in range(array.shape[axis]):
            out[f"{key}/part/{i}"] = np.take(array, i, axis)
    return out


def _transpose(random: np.random.Generator, tree: Tree) -> Tree:
    """Axes in another order, for all keys with one last component but one."""
    chosen = _pick(random, sorted(tree)).split("/")[-2:]
    order_seed = random.permutation(4)
    return {
        key: array.transpose([int(n) for n in order_seed if n < array.ndim])
        if key.split("/")[-2:] == chosen
        else array
        for key, array in tree.items()
    }


def _heads(random: np.random.Generator, tree: Tree) -> Tree:
    """An axis is cut in two, and one of the parts goes elsewhere."""
    chosen = _pick(random, sorted(tree)).split("/")[-2:]
    out = {}
    for key, array in tree.items():
        if key.split("/")[-2:] == chosen and array.ndim == 2 and array.shape[0] % 2 == 0:
            array = einops.rearrange(array, "(h d) e -> e h d", h=2)
        out[key] = array
    return out


def _fuse(random: np.random.Generator, tree: Tree) -> Tree:
    """Two leaves beside each other become one, one behind the other or interleaved."""
    out = dict(tree)
    key = _pick(random, sorted(tree))
    parent = key.rsplit("/", 2)[0]
    others = [
        k for k in tree if k != key and k.rsplit("/", 2)[0] == parent and tree[k].dtype == tree[key].dtype
    ]
    if others:
        other = _pick(random, sorted(others))
        a, b = tree[key], tree[other]
        if a.ndim == b.ndim and a.ndim and a.shape[1:] == b.shape[1:]:
            del out[key], out[other]
            if a.shape == b.shape and random.random() < 0.5:
                out[f"{parent}/fused/w"] = np.stack([a, b], 1).reshape(2 * a.shape[0], *a.shape[1:])
            else:
                out[f"{parent}/fused/w"] = np.concatenate([a, b])
    return out


def _split(random: np.random.Generator, tree: Tree) -> Tree:
    """An array is cut along its first axis, evenly or not."""
    out = dict(tree)
    key = _pick(random, sorted(tree))
    array = tree[key]
    if array.ndim and array.shape[0] > 2:
        at = int(random.integers(1, array.shape[0]))
        del out[key]
        out[f"{key}/low"], out[f"{key}/high"] = array[:at], array[at:]
    return out


def _cast(random: np.random.Generator, tree: Tree) -> Tree:
    """Floats get another dtype."""
    dtype = _pick(random, (ml_dtypes.bfloat16, np.float32))
    floats = (ml_dtypes.bfloat16, np.float16, np.float32, np.float64)
    return {
        key: array.astype(dtype) if array.dtype in floats and abs(array).max(initial=0) < 1e4 else array
        for key, array in tree.items()
    }


def _drop(random: np.random.Generator, tree: Tree) -> Tree:
    """A leaf, or all below one component, goes."""
    key = _pick(random, sorted(tree))
    prefix = "/".join(key.split("/")[: int(random.integers(2, 5))])
    out = {k: a for k, a in tree.items() if not (k == prefix or k.startswith(f"{prefix}/"))}
    return out or tree


def _swap(random: np.random.Generator, tree: Tree) -> Tree:
    """Two leaves of one shape exchange their names."""
    one, other = _pick(random, sorted(tree)), _pick(random, sorted(tree))
    if tree[one].shape == tree[other].shape and tree[one].dtype == tree[other].dtype:
        return {**tree, one: tree[other], other: tree[one]}
    return tree


def _arithmetic(random: np.random.Generator, tree: Tree) -> Tree:
    """One family is multiplied by a number, or a number is added."""
    chosen = _pick(random, sorted(tree)).split("/")[-2:]
    plus = random.random() < 0.5
    factor = np.float32(_pick(random, (2.0, 0.5, 3.0, 8**-0.5)))
    out = {}
    for key, array in tree.items():
        if key.split("/")[-2:] == chosen and array.dtype == np.float32:
            array = array + np.float32(1) if plus else array * factor
        out[key] = array
    return out


def _new(random: np.random.Generator, tree: Tree) -> Tree:
    """A leaf that the source has not."""
    return {**tree, "new_head/w": random.standard_normal((5, 7)).astype(np.float32)}


def _touch(random: np.random.Generator, tree: Tree) -> Tree:
    """One element of one leaf changes."""
    key = _pick(random, sorted(tree))
    array = tree[key].copy()
    if array.size:
        array.flat[int(random.integers(array.size))] += 1
    return {**tree, key: array}


def _pad(random: np.random.Generator, tree: Tree) -> Tree:
    """Zeros behind the rows of one leaf."""
    key = _pick(random, sorted(tree))
    array = tree[key]
    if not array.ndim:
        return tree
    return {**tree, key: np.pad(array, [(0, 2), *[(0, 0)] * (array.ndim - 1)])}


CHANGES: tuple[Change, ...] = (
    *(_rename, _rename, _stack, _stack, _stack_reversed, _unstack, _transpose, _transpose, _heads, _fuse),
    *(_split, _cast, _drop, _swap, _arithmetic, _new, _touch, _pad),
)
