"""Take over values of trees in memory: as they are, or moved from device to device, never by the host."""

from typing import Any

from ckpt_surgery.core.frozen import frozen


@frozen(eq=False)
class MovedValue:
    """A value of a tree that becomes a leaf of the result."""

    value: Any
    sharding: Any | None
    """Where to move it; None if it stays where it is, and the result has the same object."""


def direct_move(value: Any, like: Any | None, sharding: Any | None) -> MovedValue | None:
    """Move that makes a tree's value a leaf unchanged; None if it has to pass through the host.

    `like`: what the target holds there, `value` itself if it is kept; None without a target. `sharding`: that
    of the leaf; None for an array that is not bound to the default device.
    """
    import jax

    if value is like and not isinstance(value, jax.Array):
        return MovedValue(value, None)
    wanted = like is None or isinstance(like, jax.Array | jax.ShapeDtypeStruct)
    if not wanted or not isinstance(value, jax.Array):
        return None
    if sharding is None:
        at_home = not value.committed and value.devices() == default_devices()
        return MovedValue(value, None) if value is like or at_home else None
    if value.committed and value.sharding.is_equivalent_to(sharding, value.ndim):
        return MovedValue(value, None)
    return MovedValue(value, sharding)


def default_devices() -> set[Any]:
    """The device on which JAX puts arrays of this thread by default."""
    import jax

    config: Any = jax.config
    device = config.jax_default_device  # a device, or the name of a platform
    if device is None or isinstance(device, str):
        return {jax.local_devices(backend=device)[0]}
    return {device}


def take_over(move: MovedValue, in_result: set[int]) -> Any:
    """Put a value in its place; copy it if the result has the same array already.

    One buffer cannot be donated twice. `in_result` holds the identities of the result's arrays; the identity
    of this one is added.
    """
    import jax

    if move.sharding is not None:
        return move_to(move.value, move.sharding)
    if not isinstance(move.value, jax.Array):
        return move.value
    if id(move.value) in in_result:
        return copy_of(move.value)
    in_result.add(id(move.value))
    return move.value


def move_to(value: Any, sharding: Any) -> Any:
    """Move an array to another sharding, into memory that nothing else uses, so that it can be donated.

    Without the copy, JAX keeps what lies on the right device already, lets devices of the CPU share memory,
    and takes over that of NumPy's arrays.
    """
    import jax

    return copy_of(jax.device_put(value, sharding))


def copy_of(value: Any) -> Any:
    """Copy of an array, on the same sharding."""
    import jax
    import jax.numpy as jnp

    if not value.committed:
        return jnp.copy(value)
    return jax.device_put(value, value.sharding, may_alias=False)
