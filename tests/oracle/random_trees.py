"""Random trees, and transforms of Orbax for them that do not overlap."""

import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from orbax.checkpoint.transform_utils import Transform

from tests.oracle.trees import Tree

Path_ = tuple[str, ...]

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int32", "int64", "uint8"]

names = st.text("abcxyz_.+0123456789", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))

arrays = st.builds(
    lambda shape, dtype, start: np.asarray(np.arange(np.prod(shape)).reshape(shape) % 50 + start).astype(
        dtype
    ),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from(DTYPES),
    st.integers(0, 50),
)
leaves = st.one_of(st.integers(-1000, 1000), st.floats(-1e3, 1e3), arrays)

trees = st.recursive(
    leaves, lambda inner: st.dictionaries(names, inner, min_size=1, max_size=4), max_leaves=10
)


@dataclass(frozen=True)
class Surgery:
    original: Tree
    new: Tree
    transforms: Tree
    default_to_original: bool


def flatten(tree: Tree, path: Path_ = ()) -> dict[Path_, Any]:
    if not isinstance(tree, dict):
        return {path: tree}
    return {k: v for name, inner in tree.items() for k, v in flatten(inner, (*path, name)).items()}


def unflatten(leaves_: dict[Path_, Any]) -> Tree:
    tree: Tree = {}
    for path, value in leaves_.items():
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return tree


def storable(tree: Tree) -> bool:
    """Orbax joins key components with dots: two leaves must not become one."""
    dotted = [".".join(path) for path in flatten(tree)]
    return len(set(dotted)) == len(dotted)


ACTIONS = ("keep", "drop", "rename", "double", "rename and double", "fallback", "move by regex")


@st.composite
def surgeries(draw: st.DrawFn) -> Surgery:
    original = draw(st.dictionaries(names, trees, min_size=1, max_size=4).filter(storable))
    prefer_source = draw(st.booleans())
    new: dict[Path_, Any] = {("only in the target",): np.arange(3)}
    transforms: dict[str, Transform] = {}

    moved = False
    for i, (path, value) in enumerate(flatten(original).items()):
        text, fresh = "/".join(path), (f"new {i}",)
        action = draw(st.sampled_from(ACTIONS))
        if action == "keep":
            new[path] = other(value)
        elif action == "double":
            new[path] = other(value)
            transforms[re.escape(text)] = Transform(value_fn=double)
        elif action == "rename":
            new[fresh] = other(value)
            transforms[re.escape(fresh[0])] = Transform(original_key=template(text))
        elif action == "rename and double":
            new[fresh] = other(value)
            transforms[re.escape(fresh[0])] = Transform(original_key=template(text), value_fn=double)
        elif action == "fallback":
            new[path] = other(value)
            transforms[re.escape(text)] = Transform(use_fallback=True)
        elif action == "move by regex":
            new["moved", *path] = other(value)
            moved = True
    if moved:
        transforms["moved/(.*)"] = Transform(original_key=r"\1")
    return Surgery(original, unflatten(new), transforms, prefer_source)


def double(value: Any) -> Any:
    return np.asarray(value * 2) if isinstance(value, np.ndarray) else value * 2


def other(value: Any) -> Any:
    """A different value of the same kind, for the target."""
    return np.asarray(value + 1) if isinstance(value, np.ndarray) else value + 1


def template(text: str) -> str:
    """A key as a template; these names have no characters with a meaning in templates."""
    assert "\\" not in text
    assert "$" not in text
    return text
