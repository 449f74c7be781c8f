"""Layers of several kinds in one numbering."""

import numpy as np

import ckpt_surgery
from ckpt_surgery.inference.keys.grids import MOST_KINDS, grids, layer_kinds


def kinds(*keys: str) -> list[list[str]]:
    return [sorted(kind) for kind in layer_kinds(grids(keys))]


def test_layers_are_of_one_kind_if_the_same_names_lie_below_them() -> None:
    dense = [f"h.{i}.{name}" for i in range(2) for name in ("norm", "mlp")]
    experts = [f"h.{i}.{name}" for i in range(2, 5) for name in ("norm", "router", "experts.0", "experts.1")]
    assert kinds(*dense, *experts, "head") == [sorted(dense), sorted(experts)]


def test_layers_that_are_all_alike_have_no_kinds() -> None:
    assert kinds(*(f"h.{i}.{name}" for i in range(4) for name in ("norm", "mlp"))) == []


def test_layers_that_are_all_different_have_none() -> None:
    assert (
        kinds(*(f"h.{i}.only_{chr(97 + i)}" for i in range(MOST_KINDS + 1)), *(f"h.{i}.w" for i in range(9)))
        == []
    )


def test_a_stack_for_each_kind_is_found_by_names_alone() -> None:
    """Norms are in all five layers, so they are two stacks; neither has the size of all."""
    source, target = {}, {"dense_layers": {}, "moe_layers": {}}
    for i in range(5):
        below = {"input_layernorm": np.zeros(6), "mlp": {"down_proj": np.zeros((6, 8))}}
        if i > 1:
            below["mlp"] = {"experts": {str(e): {"down_proj": np.zeros((6, 4))} for e in range(5)}}
        source[str(i)] = below
    for name, count in (("dense_layers", 2), ("moe_layers", 3)):
        target[name]["pre_self_attention_layer_norm"] = np.zeros((count, 6))
    target["dense_layers"]["mlp"] = {"wo": np.zeros((2, 8, 6))}
    target["moe_layers"]["experts"] = {"wo": np.zeros((3, 5, 4, 6))}
    inference = ckpt_surgery.infer({"layers": source}, target, values="ignore")
    assert inference.decided, inference.recipe
    stacks = {one.target: (one.sources[0], len(one.sources)) for one in inference.findings.formations}
    assert stacks["dense_layers/pre_self_attention_layer_norm"] == ("layers/0/input_layernorm", 2)
    assert stacks["moe_layers/pre_self_attention_layer_norm"] == ("layers/2/input_layernorm", 3)
