"""T5's values under its three names; names and shapes from the tables of `tests/recipes/t5_layouts.py`."""

from typing import Literal

import numpy as np

from tests.recipes import t5_layouts as layouts

Arrays = dict[str, np.ndarray]
SIZE = layouts.Size(layers=3, vocab=50, embed=24, heads=4, joined=20, mlp=40, buckets=5)


def values(version: Literal["1.0", "1.1"], slots: layouts.Slots) -> tuple[Arrays, Arrays, Arrays]:
    """One model with its optimizer's slots: in Mesh TensorFlow, in T5X, and without slots in Hugging Face."""
    random = np.random.default_rng(3)
    parameters = layouts.t5(SIZE, version, "shared")
    mesh: Arrays = {"global_step": np.array(1000, np.int64)}
    t5x: Arrays = {"state/step": np.array(1000, np.int32)}
    hugging_face: Arrays = {}
    for parameter in parameters:
        array = random.standard_normal(parameter.shape).astype(np.float32)
        mesh[parameter.mesh] = t5x[f"target/{parameter.t5x}"] = array
        hugging_face[parameter.hugging_face] = array.T if parameter.transposed else array
        unused = np.zeros(1, np.float32)
        factored = layouts.is_factored(parameter, slots)
        whole = {"v": parameter.shape}
        rows = {"v_row": parameter.shape[:1], "v_col": parameter.shape[1:]}
        used = rows if factored else whole
        names = {"v": "slot_v", "v_row": "slot_vr", "v_col": "slot_vc"}
        for slot in ("m", "v", "v_row", "v_col"):
            key = f"state/param_states/{parameter.t5x}/{slot}"
            t5x[key] = unused
            if slot in used:
                t5x[key] = mesh[f"{parameter.mesh}_{names[slot]}"] = random.standard_normal(
                    used[slot]
                ).astype(np.float32)
    return mesh, t5x, hugging_face
