"""The leaves' own shardings, and shapes that cannot be divided."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.live.shardings import sharding_flaw
from ckpt_surgery.live.tree import live_tree
from tests.support.shardings import resolved, says, shape

P = PartitionSpec


def test_the_own_shardings_of_arrays_and_of_shapes(mesh: Mesh) -> None:
    rows, device = NamedSharding(mesh, P("data")), SingleDeviceSharding(jax.devices()[3])
    host = NamedSharding(mesh, P("model"), memory_kind=jax.devices()[0].default_memory().kind)
    found = resolved(
        {
            "a": jax.device_put(np.ones((8, 4)), rows),
            "b": shape(8, 4, sharding=host),
            "c": jax.device_put(np.ones(3), device),
            "d": jax.device_put(jax.random.split(jax.random.key(0), 4), rows),
            "e": shape(3),
            "f": jnp.ones(3),
        }
    )
    assert found == {"a": rows, "b": host, "c": device, "d": rows, "e": None, "f": None}
    assert found["b"].memory_kind == host.memory_kind


def test_what_is_no_array_of_jax_has_no_sharding(mesh: Mesh) -> None:
    tree = {"a": np.ones(8), "b": 1, "c": 2.0, "d": "text", "e": None, "f": np.float32(1), "g": abs}
    assert resolved({**tree, "h": jnp.ones(8)}, NamedSharding(mesh, P("data"))) == {
        "h": NamedSharding(mesh, P("data"))
    }


def test_shardings_of_shapes_over_explicit_axes_are_over_the_mesh_in_use() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        tree = jax.eval_shape(lambda: {"a": jnp.ones((8, 4), out_sharding=P("data"))})
        assert resolved(tree) == {"a": NamedSharding(mesh, P("data", None))}
    assert says(UsageError, tree, None) == (
        "the sharding of `a` is over an AbstractMesh {data: 2, model: 4}: it names no devices"
    )


def test_what_a_sharding_cannot_divide_is_what_jax_cannot(mesh: Mesh) -> None:
    specs = [P(), P("data"), P(None, "model"), P(("data", "model")), P("model", "data"), P(None, None, None)]
    refused_of = 0
    for lengths in [(8, 4), (6, 8), (4,), (7, 3), ()]:
        leaf = live_tree({"a": shape(*lengths)}).leaves["a"]
        for spec in specs:
            sharding = NamedSharding(mesh, spec)
            flaw = sharding_flaw(leaf, sharding)
            refused_of += flaw is not None
            try:
                jax.device_put(np.zeros(lengths), sharding)
            except ValueError:
                assert flaw is not None
            else:
                assert flaw is None
    assert refused_of == 18


def test_flaws_of_keys_and_of_other_leaves(mesh: Mesh) -> None:
    tree = live_tree({"keys": jax.random.split(jax.random.key(0), 4), "text": "a"})
    assert sharding_flaw(tree.leaves["keys"], NamedSharding(mesh, P("model"))) is None
    assert sharding_flaw(tree.leaves["keys"], NamedSharding(mesh, P(None, "data"))) == (
        "has 1 axis, the spec P(None, 'data') is for 2"
    )
    assert sharding_flaw(tree.leaves["keys"], None) is None
    assert sharding_flaw(tree.leaves["text"], NamedSharding(mesh, P("model"))) is None
    assert sharding_flaw(tree.leaves["keys"], SingleDeviceSharding(jax.devices()[0])) is None
