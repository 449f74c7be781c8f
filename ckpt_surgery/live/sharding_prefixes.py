"""Prefixes of a tree, as `jax.jit` takes them: a sharding holds for all leaves below its place."""

from collections.abc import Iterator, Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.live.meshes import mesh_in_use, sharding_over, spec_as_text
from ckpt_surgery.live.modules import with_states
from ckpt_surgery.live.paths import key_of
from ckpt_surgery.live.tree import LiveTree

Path = tuple[Any, ...]
"""Entries of a path of `jax.tree_util`."""

TAKEN = "It takes a sharding, a prefix of the tree with shardings and None, or rules with a mesh."


def spread_prefix(prefix: Any, tree: LiveTree) -> dict[str, Any]:
    """Sharding that a prefix gives each leaf of a tree, by the text of its key; None for the leaf's own.

    A PartitionSpec in a prefix is one over the mesh of `jax.set_mesh`. Modules of NNX in the tree may be
    modules or states in the prefix. Raises UsageError if the prefix does not have the tree's structure, or
    holds something that is not a sharding.
    """
    has_modules = with_states(prefix)[0] is not prefix
    return dict(_spread(prefix, tree.rebuilt({}) if has_modules else tree.listed({}), ()))


def _spread(prefix: Any, node: Any, path: Path) -> Iterator[tuple[str, Any]]:
    # Not `jax.tree.broadcast`: if a prefix does not fit and has None anywhere, its error names the place of
    # the None; for modules it names none, as making the message fails.
    import jax

    if prefix is None or jax.tree_util.all_leaves([prefix]):
        sharding = None if prefix is None else _sharding(prefix, path)
        yield from ((key, sharding) for key in _leaf_keys(node, path))
        return
    if _structure(prefix) != _structure(node):
        raise UsageError(_mismatch(prefix, node, path), hint=_HINT)
    for (entry, value), (_, part) in zip(_children(prefix), _children(node), strict=True):
        yield from _spread(value, part, (*path, *entry))


def _children(node: Any) -> Sequence[tuple[Path, Any]]:
    """Parts of a container with their entries; none for a leaf, None and an empty container."""
    import jax

    parts = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda part: part is not node)[0]
    return [] if len(parts) == 1 and parts[0][1] is node else parts


def _structure(node: Any) -> Any:
    """Type and keys of a container, and its static fields."""
    import jax

    return jax.tree_util.tree_structure(node, is_leaf=lambda part: part is not node)


def _leaf_keys(node: Any, path: Path) -> Iterator[str]:
    import jax

    for rest, _ in jax.tree_util.tree_flatten_with_path(node)[0]:
        yield key_of((*path, *rest)).text


def _sharding(value: Any, path: Path) -> Any:
    """Check that a value is a sharding over devices. Raises UsageError, with its place, if it is not."""
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec, Sharding

    if isinstance(value, PartitionSpec):
        return _sharding_in_use(value, path)
    if not isinstance(value, Sharding):
        raise UsageError(f"`shardings` has {_type_of(value)}{_at(path)}, which is not a sharding", hint=TAKEN)
    if isinstance(value, NamedSharding) and isinstance(value.mesh, AbstractMesh):
        raise UsageError(
            f"`shardings` has a sharding{_at(path)} over an AbstractMesh, which names no devices",
            hint="Give one over a `jax.sharding.Mesh`, as `jax.make_mesh` makes.",
        )
    return value


def _sharding_in_use(spec: Any, path: Path) -> Any:
    mesh = mesh_in_use()
    if mesh is None:
        raise UsageError(
            f"`shardings` has {spec_as_text(spec)}{_at(path)}, and no mesh is known for it",
            hint="Give `NamedSharding(mesh, spec)`, or call it inside `with jax.set_mesh(mesh):`.",
        )
    return sharding_over(mesh, spec, f"`shardings`{_at(path)}")


_HINT = "A prefix has the tree's containers down to its shardings; None stands for the leaves' own."


def _mismatch(prefix: Any, node: Any, path: Path) -> str:
    given, wanted = _container(prefix), _container(node)
    if given == wanted:
        wanted = "one with other static fields"
    return f"`shardings` does not fit the tree{_at(path)}: it has {given}, the tree {wanted}"


def _container(node: Any) -> str:
    """Type of a container with its keys, as `a dict with a, b`; of a leaf, its type alone."""
    names = [key_of(entry).text for entry, _ in _children(node)]
    return f"{_type_of(node)} with {few(names, 5)}" if names else _type_of(node)


def _type_of(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {shown(name)}"


def _at(path: Path) -> str:
    return f" at `{shown(key_of(path).text)}`" if path else ""
