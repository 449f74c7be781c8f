"""Settings of JAX that hold in one thread alone, such as those of `with jax.default_device(…)`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


def as_here() -> Callable[[], AbstractContextManager[None]]:
    """A context for other threads in which JAX makes the arrays that it makes in this one.

    These are the default device, and whether there are types of 64 bits. Without it, a thread would narrow
    them without a word.
    """
    import jax

    config: Any = jax.config
    wide, device = config.jax_enable_x64, config.jax_default_device

    @contextmanager
    def settings() -> Iterator[None]:
        with jax.enable_x64(wide), jax.default_device(device):
            yield

    return settings
