"""Shardings of trees in tests: a mesh of the eight devices, and what is said of shardings that are wrong."""

from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.live.shardings import resolved_shardings
from ckpt_surgery.live.tree import live_tree
from tests.support.heavy import jax, jnp


def eight_devices() -> "jax.sharding.Mesh":
    """A mesh of two by four devices: `data`, `model`."""
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


def shape(*lengths: int, sharding: Any = None) -> Any:
    """An abstract array of float32."""
    return jax.ShapeDtypeStruct(lengths, jnp.float32, sharding=sharding)


def resolved(tree: Any, shardings: Any = None) -> dict[str, Any]:
    """The sharding of each array of a pytree by key."""
    return dict(resolved_shardings(live_tree(tree), shardings))


def refused(kind: type[SurgeryError], tree: Any, shardings: Any) -> list[tuple[str, str | None]]:
    """Messages and hints of the problems with which shardings are refused."""
    with pytest.raises(SurgeryError) as caught:
        resolved(tree, shardings)
    assert type(caught.value) is kind
    return [(problem.message, problem.hint) for problem in caught.value.problems]


def says(kind: type[SurgeryError], tree: Any, shardings: Any) -> str:
    """The message with which shardings are refused."""
    [(message, _)] = refused(kind, tree, shardings)
    return message
