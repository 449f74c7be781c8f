"""Boxes of flax around arrays that say how they are divided. They are told by their attributes.

flax is not imported: where a tree has its boxes, its modules are there already.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.text import shown
from ckpt_surgery.live.meshes import mesh_in_use, over
from ckpt_surgery.live.paths import key_of
from ckpt_surgery.live.tree import LiveTree


@dataclass(frozen=True, eq=False)
class Boxed:
    """What a box says of its array."""

    spec: Any
    """PartitionSpec over the axes of a mesh."""
    mesh: Any
    """The box's own mesh; None where it has none."""

    def over(self, mesh: Any, text: str) -> Any:
        """The NamedSharding over a mesh; without one, over the box's own or that of `jax.set_mesh`.

        None where there is no mesh. Raises UsageError, naming the key, where the mesh lacks an axis.
        """
        from jax.sharding import Mesh

        meshes = (mesh, self.mesh, mesh_in_use())
        known = next((one for one in meshes if isinstance(one, Mesh) and not one.empty), None)
        return None if known is None else over(known, self.spec, f"the box of `{shown(text)}`", _HINT)


_HINT = "Set flax's logical axis rules for this mesh, or give `shardings=` with a rule for this key."


def boxes(tree: LiveTree) -> Mapping[str, Boxed]:
    """What the boxes of a tree say, by the text of the key of their array.

    These are linen's `Partitioned` and `LogicallyPartitioned`, and variables of NNX with `out_sharding`.
    Names of logical axes go through the box's own rules, or those that flax has at this moment; without any
    rules such a box says nothing.
    """
    import jax

    found = jax.tree_util.tree_flatten_with_path(tree.listed({}), is_leaf=_is_box)[0]
    said: dict[str, Boxed] = {}
    for path, node in found:
        if not _is_box(node):
            continue
        spec = _spec_of(node)
        if spec is None:
            continue
        for rest, _ in jax.tree_util.tree_flatten_with_path(node)[0]:
            said[key_of((*path, *rest)).text] = Boxed(spec, _metadata(node).get("mesh"))
    return said


def _is_box(node: Any) -> bool:
    return _is_of_linen(node) or _is_of_nnx(node)


def _is_of_linen(node: Any) -> bool:
    kind = type(node)
    return hasattr(kind, "get_partition_spec") and hasattr(kind, "unbox") and hasattr(node, "names")


def _is_of_nnx(node: Any) -> bool:
    return hasattr(type(node), "get_metadata") and hasattr(type(node), "add_axis")


def _metadata(box: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = vars(box) if _is_of_linen(box) else box.get_metadata()
    return found


def _spec_of(box: Any) -> Any:
    """The PartitionSpec over the axes of a mesh; None where the box says nothing."""
    from jax.sharding import NamedSharding, PartitionSpec

    if _is_of_linen(box):
        return _logical(box) if hasattr(box, "rules") else box.get_partition_spec()
    metadata = _metadata(box)
    names = metadata.get("out_sharding", metadata.get("sharding_names"))  # flax before 0.12.1: the latter
    if isinstance(names, NamedSharding):
        names = names.spec
    if not isinstance(names, tuple | list | PartitionSpec) or not names:
        return None
    rules = dict([*_set_rules(), *(metadata.get("sharding_rules") or ())])
    axes = (rules.get(name, name) if isinstance(name, str) else name for name in names)
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def _logical(box: Any) -> Any:
    rules = box.rules if box.rules is not None else _set_rules()
    return sys.modules["flax.linen.spmd"].logical_to_mesh_axes(box.names, rules) if rules else None


def _set_rules() -> Iterable[tuple[str, Any]]:
    """The rules for logical axes that flax has in this thread at this moment."""
    module = sys.modules.get("flax.core.spmd")
    return () if module is None else module.get_logical_axis_rules()
