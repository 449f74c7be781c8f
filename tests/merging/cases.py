"""Configurations that both mergekit and `merge` carry out, on the same small models."""

from typing import Any

MODELS = ("base", "math", "code", "chat")
"""Four Llama models of three layers with other random weights; the last two differ from the base by
little."""


def models(*names: str, **parameters: list[Any]) -> list[dict[str, Any]]:
    """Entries of `models`. `parameters`: a value for each model."""
    return [
        {"model": name, **({"parameters": {p: v[i] for p, v in parameters.items()}} if parameters else {})}
        for i, name in enumerate(names)
    ]


def case(
    method: str, entries: list[dict[str, Any]], base: str | None = None, **fields: Any
) -> dict[str, Any]:
    """A configuration with `models`."""
    return {
        "merge_method": method,
        "models": entries,
        **({} if base is None else {"base_model": base}),
        "dtype": "float32",
        **fields,
    }


def sliced(method: str, *slices: Any, **fields: Any) -> dict[str, Any]:
    """A configuration with `slices`, each a list of (model, first layer, stop)."""
    listed = [
        {"sources": [{"model": model, "layer_range": [first, stop]} for model, first, stop in slice]}
        for slice in slices
    ]
    return {"merge_method": method, "slices": listed, "dtype": "float32", **fields}


TWO = models("math", "code")
THREE = models("math", "code", "chat", weight=[0.5, 0.3, 0.4])
BY_NAME = [
    {"filter": "self_attn", "value": [0.1, 0.3, 1]},
    {"filter": "mlp", "value": [0.9, 0.1]},
    {"value": 0.4},
]
DENSE = models("math", "code", "chat", weight=[0.5, 0.3, 0.4], density=[0.5, 0.3, 0.8])

CASES: dict[str, dict[str, Any]] = {
    "linear": case("linear", models("math", "code", weight=[1.0, 0.25])),
    "linear-three-bfloat16": case("linear", THREE, out_dtype="bfloat16"),
    "linear-unnormalized": case("linear", THREE, parameters={"normalize": False}),
    "linear-gradient": case("linear", models("math", "code", weight=[[0, 0.5, 1], BY_NAME])),
    "linear-negative": case("linear", models("math", "code", weight=[1.5, -0.25])),
    "slerp": case("slerp", TWO, "math", parameters={"t": 0.3}),
    "slerp-by-name": case("slerp", TWO, "code", parameters={"t": BY_NAME}),
    "slerp-close": case("slerp", models("base", "chat"), "base", parameters={"t": 0.5}),
    "slerp-slices": sliced(
        "slerp",
        [("math", 0, 2), ("code", 0, 2)],
        [("math", 1, 3), ("code", 1, 3)],
        base_model="math",
        parameters={"t": [0.1, 0.8]},
    ),
    "task-arithmetic": case("task_arithmetic", THREE, "base"),
    "task-arithmetic-normalized": case(
        "task_arithmetic", THREE, "base", parameters={"normalize": True, "lambda": 0.7}
    ),
    "ties": case("ties", DENSE, "base"),
    "ties-unnormalized": case(
        "ties", DENSE, "base", parameters={"normalize": False, "lambda": 1.5, "int8_mask": True}
    ),
    "ties-rescaled": case("ties", DENSE, "base", parameters={"rescale": True}),
    "ties-negative": case("ties", models("math", "code", weight=[1.0, -0.5], density=[0.2, 0.7]), "base"),
    "dare-linear-dense": case("dare_linear", THREE, "base"),
    "dare-ties-dense": case("dare_ties", THREE, "base", parameters={"normalize": True}),
    "breadcrumbs": case("breadcrumbs", DENSE, "base", parameters={"gamma": 0.05}),
    "breadcrumbs-ties": case("breadcrumbs_ties", DENSE, "base", parameters={"gamma": 0.3}),
    "della": case("della", DENSE, "base", parameters={"epsilon": 0.15}),
    "della-unnormalized": case(
        "della", DENSE, "base", parameters={"epsilon": 0.19, "normalize": False, "lambda": 1.5}
    ),
    "della-linear": case(
        "della_linear",
        models("math", "code", "chat", weight=[0.5, 0.3, 0.4], density=[0.55, 1.0, 0.0]),
        "base",
        parameters={"epsilon": 0.4},
    ),
    "della-linear-unscaled": case(
        "della_linear",
        models("math", "code", weight=[0.5, 0.3], density=[0.45, 0.7], epsilon=[0.35, 0.25]),
        "base",
        parameters={"rescale": False, "normalize": True},
    ),
    "nuslerp": case("nuslerp", models("math", "code", weight=[0.6, 0.2])),
    "nuslerp-base": case("nuslerp", models("math", "code", weight=[0.6, 0.2]), "base"),
    "nuslerp-columns": case(
        "nuslerp", models("math", "code", weight=[0.6, 0.2]), parameters={"nuslerp_flatten": False}
    ),
    "nuslerp-rows": case(
        "nuslerp",
        models("math", "code", weight=[0.6, 0.2]),
        parameters={"nuslerp_flatten": False, "nuslerp_row_wise": True},
    ),
    "multislerp": case("multislerp", THREE),
    "multislerp-base": case("multislerp", THREE, "base", parameters={"normalize_weights": False}),
    "karcher": case("karcher", models("math", "code", "chat")),
    "karcher-two-steps": case("karcher", models("math", "code", "chat"), parameters={"max_iter": 2}),
    "model-stock": case("model_stock", models("math", "code", "chat"), "base"),
    "model-stock-filters": case(
        "model_stock", models("math", "code", "chat"), "base", parameters={"filter_wise": True}
    ),
    "nearswap": case("nearswap", models("base", "math"), "base", parameters={"t": 0.01}),
    "sce": case("sce", models("math", "code", "chat"), "base"),
    "sce-selected": case("sce", models("math", "code", "chat"), "base", parameters={"select_topk": 0.3}),
    "sce-two": case("sce", TWO, "base", parameters={"select_topk": [0.9, 0.0, 0.13]}),
    "ram": case("ram", models("math", "code", "chat"), "base", parameters={"epsilon": 0.02}),
    "ramplus-tl": case("ramplus_tl", models("math", "code", "chat"), "base", parameters={"epsilon": 0.02}),
    "arcee-fusion": case("arcee_fusion", models("base", "math"), "base"),
    "passthrough": sliced("passthrough", [("math", 0, 2)], [("code", 0, 3)], [("math", 2, 3)]),
    "passthrough-scale": {
        **sliced("passthrough", [("math", 0, 2)], [("code", 0, 3)]),
        "parameters": {
            "scale": [
                {"filter": "o_proj", "value": 0.5},
                {"filter": "down_proj", "value": [0, 2]},
                {"value": 1.0},
            ]
        },
    },
}
"""Name → configuration. Models are named by the last component of their path."""

HALVED = ("della", "della-unnormalized", "della-linear", "della-linear-unscaled")
"""Cases in which no mask is drawn at random, by either: what has a probability above one half is kept. So the
probabilities themselves are compared."""
