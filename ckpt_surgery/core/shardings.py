"""Orbax's JSON text of shardings: short forms for people, and new ones over a mesh of devices."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.text import did_you_mean, shown

Mesh = Mapping[str, int]
"""Length of each axis of a mesh of devices, in order."""

Spec = tuple[str | tuple[str, ...] | None, ...]
"""A PartitionSpec of jax: for each of the first axes of an array the mesh axes that it is divided over."""


def named_sharding(
    mesh: Mesh, spec: Spec, devices: Sequence[int] | None = None, types: Sequence[str] | None = None
) -> str:
    """The text that Orbax records for a NamedSharding.

    `devices`: numbers of the devices in the mesh's order, row by row; by default 0, 1, 2, …
    `types`: kinds of the mesh axes as jax prints them, by default `AxisType.Auto` for each.
    """
    lengths = tuple(mesh.values())
    types = ["AxisType.Auto"] * len(mesh) if types is None else list(types)
    rows: list[Any] = [{"id": n} for n in (range(math.prod(lengths)) if devices is None else devices)]
    for length in reversed(lengths):  # nested lists, row by row
        rows = [rows[at : at + length] for at in range(0, len(rows), length)]
    axes = [list(axis) if isinstance(axis, tuple) else axis for axis in spec]
    about = {"shape": list(lengths), "axis_names": list(mesh), "axis_types": types, "partition_spec": axes}
    return json.dumps({"sharding_type": "NamedSharding", **about, "device_mesh": {"mesh": rows[0]}})


def single_device_sharding(device: str) -> str:
    """The text that Orbax records for a SingleDeviceSharding on the device that jax prints so."""
    return json.dumps({"sharding_type": "SingleDeviceSharding", "device_str": device})


def mesh_axes(axis: str | Sequence[str] | None) -> tuple[str, ...]:
    """The mesh axes that one axis of an array is divided over."""
    return () if axis is None else (axis,) if isinstance(axis, str) else tuple(axis)


def spec_flaw(mesh: Mesh, spec: Spec) -> str | None:
    """Problem of a spec for arrays of any shape; None without one."""
    names = [name for axis in spec for name in mesh_axes(axis)]
    for i, name in enumerate(names):
        if name not in mesh:
            known = f"; it has {', '.join(mesh)}"
            return f"the mesh has no axis `{name}`{did_you_mean(name, mesh) or known}"
        if name in names[:i]:
            return f"`{name}` is twice in one spec: a mesh axis can divide only one axis of an array"
    return None


def misfit(mesh: Mesh, spec: Spec, shape: tuple[int, ...]) -> str | None:
    """Reason why jax cannot divide an array of this shape by this spec; None if it can."""
    if len(spec) > len(shape):
        return f"has {len(shape)} of the {len(spec)} axes that the spec {spec_text(spec)} is for"
    for axis, (names, length) in enumerate(zip(spec, shape, strict=False)):
        parts = math.prod(mesh[name] for name in mesh_axes(names))
        if length % parts:
            cut = ", ".join(f"{name}: {mesh[name]}" for name in mesh_axes(names))
            return f"has {length} along axis {axis}, which does not divide into {parts} parts ({cut})"
    return None


def spec_text(spec: Sequence[object]) -> str:
    """`P('x', None)`, `P(('x', 'y'))`: a list of mesh axes, as jax prints it."""
    several = [f"({', '.join(map(repr, a))})" if isinstance(a, list | tuple) else repr(a) for a in spec]
    return f"P({', '.join(several)})"


def sharding_text(sharding: str) -> str:
    """Orbax's JSON text of a sharding in short: `P('x', None) on mesh x:4,y:2`, or the device's name.

    The name of the type for kinds that later versions of Orbax may add, `unknown` for text that is not such
    JSON.
    """
    summary = sharding_summary(sharding)
    if "mesh" in summary:
        mesh = ",".join(f"{name}:{size}" for name, size in summary["mesh"].items())
        return shown(f"{spec_text(summary['partition_spec'])} on mesh {mesh}")
    return shown(summary.get("device") or summary["type"] or "unknown")


@functools.lru_cache(maxsize=256)
def sharding_summary(sharding: str) -> Mapping[str, Any]:
    """Summarize Orbax's JSON text of a sharding: all but the numbers of its devices, which can be many.

    `{"type": "NamedSharding", "partition_spec": ["x", null], "mesh": {"x": 4}}`, or `device` where there is
    one. Of any other text only the type, or null.
    """
    try:
        document = json.loads(sharding)
    except (ValueError, RecursionError):
        return {"type": None}
    known = document if isinstance(document, dict) else {}
    kind, axes, device = (known.get(name) for name in ("sharding_type", "partition_spec", "device_str"))
    summary = {"type": kind if isinstance(kind, str) else None}
    match known:
        case {"axis_names": [*names], "shape": [*sizes]} if (
            kind == "NamedSharding"
            and isinstance(axes, list)
            and all(map(is_axis, axes))
            and {*map(type, names)} <= {str}
            and {*map(type, sizes)} <= {int}
        ):
            return {**summary, "partition_spec": axes, "mesh": dict(zip(names, sizes, strict=False))}
    return {**summary, "device": device} if isinstance(device, str) else summary


def is_axis(axis: object) -> bool:
    """Whether this is an entry of a spec in JSON: a mesh axis, a list of them, or None."""
    names = axis if isinstance(axis, list) else [axis]
    return axis is None or all(type(name) is str for name in names)
