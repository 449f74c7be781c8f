"""The state of a training in a few arrangements: unrolled and scanned layers, optimizers. NumPy alone."""

import re
from collections.abc import Mapping

import numpy as np

Arrays = dict[str, np.ndarray]
LAYERS, EMBED, HEADS, HEAD_DIM, MLP, VOCAB = 5, 24, 3, 8, 40, 50
SHAPES = {
    "attention/query/kernel": (EMBED, HEADS, HEAD_DIM),
    "attention/key/kernel": (EMBED, HEADS, HEAD_DIM),
    "attention/value/kernel": (EMBED, HEADS, HEAD_DIM),
    "attention/out/kernel": (HEADS, HEAD_DIM, EMBED),
    "mlp/wi/kernel": (EMBED, MLP),
    "mlp/wo/kernel": (MLP, EMBED),
    "pre_norm/scale": (EMBED,),
    "post_norm/scale": (EMBED,),
}


def params(seed: int = 0) -> Arrays:
    """The parameters of a decoder, below no tree."""
    random = np.random.default_rng(seed)
    shapes = {"embed/embedding": (VOCAB, EMBED), "final_norm/scale": (EMBED,)}
    shapes |= {f"layers_{i}/{name}": shape for i in range(LAYERS) for name, shape in SHAPES.items()}
    return {key: random.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def below(tree: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {f"{tree}/{key}": array for key, array in arrays.items()}


def adam() -> Arrays:
    """Parameters, both moments and their count, and the step."""
    tree = below("params", params()) | below("opt_state/0/mu", params(1)) | below("opt_state/0/nu", params(2))
    return tree | {"opt_state/0/count": np.array(1000, np.int32), "step": np.array(1000, np.int32)}


def scanned(arrays: Arrays, axis: int) -> Arrays:
    """The same with all layers of a kind in one array."""
    stacked: Arrays = {}
    for key, array in arrays.items():
        match = re.fullmatch(r"(.*)/layers_(\d+)/(.*)", key)
        if match is None:
            stacked[key] = array
            continue
        name, place = f"{match[1]}/layers/{match[3]}", int(match[2])
        whole = stacked.setdefault(
            name, np.empty((*array.shape[:axis], LAYERS, *array.shape[axis:]), array.dtype)
        )
        np.moveaxis(whole, axis, 0)[place] = array
    return stacked
