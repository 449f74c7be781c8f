"""Shardings of flax's boxes: linen's Partitioned and LogicallyPartitioned, NNX's variables."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.core.errors import PlanError, UsageError
from tests.support.shardings import resolved, says, shape

P = PartitionSpec


class Dense(nn.Module):
    mesh: Mesh | None = None
    rules: Any = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        ones = nn.initializers.ones
        kernel = nn.with_logical_partitioning(ones, ("embed", "mlp"), mesh=self.mesh, rules=self.rules)
        bias = nn.with_partitioning(ones, ("model",), mesh=self.mesh)
        return nn.Dense(8, kernel_init=kernel, bias_init=bias)(x)


def linen(model: nn.Module) -> Any:
    return jax.eval_shape(model.init, jax.random.key(0), jnp.ones((2, 4)))["params"]["Dense_0"]


LOGICAL = (("mlp", "model"), ("embed", "data"))


def test_boxes_of_linen_give_their_specs_over_their_mesh(mesh: Mesh) -> None:
    expected = {
        "bias/value": NamedSharding(mesh, P("model")),
        "kernel/value": NamedSharding(mesh, P("data", "model")),
    }
    assert resolved(linen(Dense(mesh, LOGICAL))) == expected
    unset = linen(Dense(mesh))
    with nn.logical_axis_rules(LOGICAL):
        assert resolved(unset) == expected
        shardings = nn.spmd.logical_to_mesh_sharding(nn.get_partition_spec(unset), mesh)
        assert shardings["kernel"] == expected["kernel/value"]  # flax comes to the same
        assert resolved(unset, shardings)["kernel/value"] == expected["kernel/value"]
    assert resolved(unset) == {**expected, "kernel/value": None}  # no rules say what `embed` is
    with jax.set_mesh(mesh):
        assert resolved(linen(Dense(None, LOGICAL))) == expected
    assert resolved(linen(Dense(None, LOGICAL))) == dict.fromkeys(expected)


def test_a_rule_wins_over_a_box_and_the_box_takes_the_mesh_of_the_rules(mesh: Mesh) -> None:
    other = Mesh(np.array(jax.devices()[:4]).reshape(4, 1), ("data", "model"))
    assert resolved(linen(Dense(mesh, LOGICAL)), (other, {"bias/value": P("data")})) == {
        "bias/value": NamedSharding(other, P("data")),
        "kernel/value": NamedSharding(other, P("data", "model")),
    }
    assert says(PlanError, linen(Dense(mesh)), (other, {})) == (
        "no rule of `shardings` matches `kernel/value`"
    )
    strange = Mesh(np.array(jax.devices()), ("rows",))
    assert says(UsageError, linen(Dense(mesh)), (strange, {})) == (
        "the box of `bias/value`: in P('model'), the mesh has no axis `model`; it has rows"
    )


def test_the_own_sharding_wins_over_the_box_where_there_are_no_rules(mesh: Mesh) -> None:
    own = NamedSharding(mesh, P(None, "data"))
    assert resolved({"a": nn.Partitioned(shape(8, 4, sharding=own), ("model", None), mesh=mesh)}) == {
        "a/value": own
    }


def test_variables_of_nnx_give_their_specs(mesh: Mesh) -> None:
    def state(**metadata: Any) -> Any:
        said = {"out_sharding": ("embed", "model"), "eager_sharding": False, **metadata}
        kernel = nnx.Param(jnp.ones((4, 8)), **said)
        return nnx.State({"kernel": kernel, "plain": nnx.Param(jnp.ones(8))})

    rules = {"plain/value": P()}
    expected = {"kernel/value": NamedSharding(mesh, P("data", "model")), "plain/value": None}
    assert resolved(state(mesh=mesh, sharding_rules=LOGICAL)) == expected
    with nn.logical_axis_rules(LOGICAL):
        assert resolved(state(), (mesh, rules))["kernel/value"] == expected["kernel/value"]
        assert resolved(state(mesh=mesh)) == expected
    assert resolved(state()) == dict.fromkeys(expected)
    assert says(UsageError, state(), (mesh, rules)) == (
        "the box of `kernel/value`: in P('embed', 'model'), the mesh has no axis `embed`; it has data, model"
    )
