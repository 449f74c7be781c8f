"""Meshes of devices, and PartitionSpecs over them."""

from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.shardings import spec_flaw, spec_text
from ckpt_surgery.core.text import abridged, shown


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
