"""Meshes of devices, and PartitionSpecs over them."""

from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.shardings import spec_flaw
from ckpt_surgery.core.text import shown


def mesh_in_use() -> Any | None:
    """The mesh of devices that `jax.set_mesh` has set; None where there is none.

    The oldest versions of jax that this package works with do not tell: None with these, too.
    """
    import jax

    get_mesh = getattr(jax.sharding, "get_mesh", None)
    mesh = None if get_mesh is None else get_mesh()
    return None if mesh is None or mesh.empty else mesh


def over(mesh: Any, spec: Any, whose: str, hint: str | None = None) -> Any:
    """The NamedSharding of a PartitionSpec over a mesh of devices.

    Raises UsageError, beginning with `whose` the spec is, where no array can be divided so.
    """
    from jax.sharding import NamedSharding, PartitionSpec

    flaw = spec_flaw(mesh.shape, tuple(axis for axis in spec if axis is not PartitionSpec.UNCONSTRAINED))
    if any(axis is PartitionSpec.UNCONSTRAINED for axis in spec):
        flaw = "`UNCONSTRAINED` says nothing about where an array lies"
    if flaw is not None:
        raise UsageError(f"{whose}: in {shown(str(spec))}, {flaw}", hint=hint)
    return NamedSharding(mesh, spec)


def mesh_text(mesh: Any) -> str:
    """`{data: 2, model: 4}`, as a recipe says it."""
    return shown(f"{{{', '.join(f'{name}: {length}' for name, length in mesh.shape.items())}}}")
