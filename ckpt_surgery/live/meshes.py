"""Meshes of devices, PartitionSpecs over them, and the shardings that boxes of flax name for their arrays.

flax is not imported: where a tree has its boxes, which are recognized by their attributes, the program has
imported it.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.shardings import spec_flaw, spec_text
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.live.tree import LiveTree, key_of


def mesh_in_use() -> Any | None:
    """Mesh of devices set by `jax.set_mesh`; None if there is none."""
    from jax.sharding import get_mesh

    mesh = get_mesh()
    return None if mesh.empty else mesh


def mesh_of_devices(mesh: Any, whose: str) -> Any:
    """Check that a mesh is one of devices. Raises UsageError, beginning with `whose` it is, otherwise."""
    from jax.sharding import AbstractMesh, Mesh

    if isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, AbstractMesh):
        what = "an AbstractMesh, which names no devices"
    else:
        what = f"{shown(abridged(mesh))}, which is not a mesh"
    raise UsageError(f"{whose} is {what}", hint="Give a `jax.sharding.Mesh`, as `jax.make_mesh` makes.")


def sharding_over(mesh: Any, spec: Any, whose: str, hint: str | None = None) -> Any:
    """NamedSharding of a PartitionSpec over a mesh of devices.

    Raises UsageError, beginning with `whose` the spec is, if no array can be divided so.
    """
    from jax.sharding import NamedSharding, PartitionSpec

    if any(axis is PartitionSpec.UNCONSTRAINED for axis in spec):
        flaw: str | None = "`UNCONSTRAINED` says nothing about where an array lies"
    else:
        flaw = spec_flaw(mesh.shape, tuple(spec))
    if flaw is not None:
        raise UsageError(f"{whose}: in {spec_as_text(spec)}, {flaw}", hint=hint)
    return NamedSharding(mesh, spec)


def spec_as_text(spec: Any) -> str:
    """Text of a PartitionSpec, as `P('data', None)` in every version of jax."""
    return shown(spec_text(tuple(spec)))


def mesh_text(mesh: Any) -> str:
    """Axes of a mesh as a recipe writes them: `{data: 2, model: 4}`."""
    return shown(f"{{{', '.join(f'{name}: {length}' for name, length in mesh.shape.items())}}}")


Boxes = Mapping[str, Callable[[Any], Any]]
"""Shardings named by boxes, by key text, as functions of a mesh; without one, that of the box or of
`jax.set_mesh` counts, if there is one. They raise UsageError, naming the key, where it lacks an axis."""

_HINT = "Set flax's logical axis rules for this mesh, or give `shardings=` with a rule for this key."


def boxes_in(tree: LiveTree) -> Boxes:
    """Shardings named by the boxes of a tree.

    These are linen's `Partitioned` and `LogicallyPartitioned`, and variables of NNX with `out_sharding`.
    Names of logical axes go through the box's own rules, or those that flax has at this moment; without any
    rules such a box names no sharding.
    """
    import jax

    shardings: dict[str, Callable[[Any], Any]] = {}
    for path, node in jax.tree_util.tree_flatten_with_path(tree.listed({}), is_leaf=_is_box)[0]:
        spec = _spec_of(node) if _is_box(node) else None
        for rest, _ in () if spec is None else jax.tree_util.tree_flatten_with_path(node)[0]:
            text = key_of((*path, *rest)).text
            shardings[text] = functools.partial(_sharding, text, spec, _metadata(node).get("mesh"))
    return shardings


def _sharding(text: str, spec: Any, own_mesh: Any, mesh: Any) -> Any:
    from jax.sharding import Mesh

    meshes = (mesh, own_mesh, mesh_in_use())
    known = next((mesh for mesh in meshes if isinstance(mesh, Mesh) and not mesh.empty), None)
    return None if known is None else sharding_over(known, spec, f"the box of `{shown(text)}`", _HINT)


def _is_box(node: Any) -> bool:
    is_of_nnx = hasattr(type(node), "get_metadata") and hasattr(type(node), "add_axis")
    return is_of_nnx or _is_of_linen(node)


def _is_of_linen(node: Any) -> bool:
    kind = type(node)
    return hasattr(kind, "get_partition_spec") and hasattr(kind, "unbox") and hasattr(node, "names")


def _metadata(box: Any) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = vars(box) if _is_of_linen(box) else box.get_metadata()
    return metadata


def _spec_of(box: Any) -> Any:
    """PartitionSpec over the axes of a mesh; None if the box names none."""
    from jax.sharding import NamedSharding, PartitionSpec

    if _is_of_linen(box):
        if not hasattr(box, "rules"):
            return box.get_partition_spec()
        rules = _axis_rules() if box.rules is None else box.rules
        return sys.modules["flax.linen.spmd"].logical_to_mesh_axes(box.names, rules) if rules else None
    metadata = _metadata(box)
    names = metadata.get("out_sharding", metadata.get("sharding_names"))  # flax before 0.12.1: the latter
    names = names.spec if isinstance(names, NamedSharding) else names
    if not isinstance(names, tuple | list | PartitionSpec) or not names:
        return None
    by_name = dict([*_axis_rules(), *(metadata.get("sharding_rules") or ())])
    axes = (by_name.get(name, name) if isinstance(name, str) else name for name in names)
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def _axis_rules() -> Iterable[tuple[str, Any]]:
    """flax's rules for logical axes that are active in this thread."""
    module = sys.modules.get("flax.core.spmd")
    return () if module is None else module.get_logical_axis_rules()
