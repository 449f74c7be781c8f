"""Values of trees in memory that a result takes over: as they are, or moved from device to device.

None of them comes to the host.
"""

from typing import Any

from ckpt_surgery.core.frozen import frozen


@frozen(eq=False)
class Moved:
    """A value of a tree that becomes a leaf of the result."""

    value: Any
    sharding: Any | None
    """Where to move it; None: it stays where it is, and the result has the same object."""


def moved(value: Any, like: Any | None, sharding: Any | None) -> Moved | None:
    """How a tree's value becomes a leaf unchanged; None where that takes a way through the host.

    `like`: what the target holds there, `value` itself where it is kept; None where there is no target.
    `sharding`: that of the leaf; None for an array that is not bound to the default device.
    """
    import jax

    if value is like and not isinstance(value, jax.Array):
        return Moved(value, None)
    wanted = like is None or isinstance(like, jax.Array | jax.ShapeDtypeStruct)
    if not wanted or not isinstance(value, jax.Array):
        return None
    if sharding is None:
        at_home = not value.committed and value.devices() == default_devices()
        return Moved(value, None) if value is like or at_home else None
    if value.committed and value.sharding.is_equivalent_to(sharding, value.ndim):
        return Moved(value, None)
    return Moved(value, sharding)


def default_devices() -> set[Any]:
    """The device on which JAX puts arrays here, where none is said."""
    import jax

    config: Any = jax.config
    said = config.jax_default_device  # a device, or the name of a platform
    if said is None or isinstance(said, str):
        return {jax.local_devices(backend=said)[0]}
    return {said}


def taken_over(move: Moved, taken: set[int]) -> Any:
    """The value in its place; a copy where the result has the same array already.

    One buffer cannot be donated twice. `taken`: identities of the arrays that the result has, added to here.
    """
    import jax

    if move.sharding is not None:
        return put(move.value, move.sharding)
    if not isinstance(move.value, jax.Array):
        return move.value
    if id(move.value) in taken:
        return copied(move.value)
    taken.add(id(move.value))
    return move.value


def put(value: Any, sharding: Any) -> Any:
    """The array on another sharding, in memory that nothing else uses, so that it can be donated.

    Without the copy, JAX keeps what lies on the right device already, lets devices of the CPU share memory,
    and takes over that of NumPy's arrays.
    """
    import jax

    return copied(jax.device_put(value, sharding))


def copied(value: Any) -> Any:
    """A copy of an array, on the same sharding."""
    import jax
    import jax.numpy as jnp

    if not value.committed:
        return jnp.copy(value)
    return jax.device_put(value, value.sharding, may_alias=False)
