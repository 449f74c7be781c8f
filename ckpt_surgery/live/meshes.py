"""Meshes of devices, and PartitionSpecs over them."""

from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.shardings import spec_flaw, spec_text
from ckpt_surgery.core.text import shown


def mesh_in_use() -> Any | None:
    """The mesh of devices that `jax.set_mesh` has set; None where there is none."""
    from jax.sharding import get_mesh

    mesh = get_mesh()
    return None if mesh.empty else mesh


def over(mesh: Any, spec: Any, whose: str, hint: str | None = None) -> Any:
    """The NamedSharding of a PartitionSpec over a mesh of devices.

    Raises UsageError, beginning with `whose` the spec is, where no array can be divided so.
    """
    from jax.sharding import NamedSharding, PartitionSpec

    flaw = spec_flaw(mesh.shape, tuple(axis for axis in spec if axis is not PartitionSpec.UNCONSTRAINED))
    if any(axis is PartitionSpec.UNCONSTRAINED for axis in spec):
        flaw = "`UNCONSTRAINED` says nothing about where an array lies"
    if flaw is not None:
        raise UsageError(f"{whose}: in {spec_as_text(spec)}, {flaw}", hint=hint)
    return NamedSharding(mesh, spec)


def spec_as_text(spec: Any) -> str:
    """`P('data', None)`, whatever the version of jax makes of it."""
    return shown(spec_text(tuple(spec)))


def mesh_text(mesh: Any) -> str:
    """`{data: 2, model: 4}`, as a recipe says it."""
    return shown(f"{{{', '.join(f'{name}: {length}' for name, length in mesh.shape.items())}}}")
