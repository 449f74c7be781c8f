"""Writes tests/data/keras: a small model of Keras 3, as every way of Keras saves it, and its values.

Run it with the version of Keras whose files are wanted: `python -m tests.formats.hdf5.make_keras`. With a
directory as argument it writes there. With a file of weights as another one, it loads these into the model
first, whose values were all 0 until then; with a `.keras` file, it takes the model in it.

It writes `model.keras`, `model.weights.h5`, `legacy.h5` (`model.save` in the layout of Keras 2),
`legacy_weights.h5` (the weights alone in that layout), and `values.npz`: the arrays of each, as `FILE:KEY`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

DATA = Path(__file__).parents[2] / "data" / "keras"
VALUES = "values.npz"


def model() -> Any:
    """Layers of float32 and bfloat16, with states of an optimizer; every value is another."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layers = keras.layers
    made = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, name="first"),
            layers.BatchNormalization(),
            layers.Dense(2, dtype="bfloat16"),
        ]
    )
    made.compile("adam", "mse")
    made.optimizer.build(made.trainable_variables)
    generator = np.random.default_rng(0)
    for variable in (*made.variables, *made.optimizer.variables):
        if variable.dtype != "int32":
            variable.assign(generator.standard_normal(variable.shape))
    return made


def arrays_of(made: Any) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of each file by their key paths."""
    names = ("dense", "batch_normalization", "dense_1")  # Keras counts the layers of each class
    weights = {
        f"layers/{name}/vars/{i}": np.array(variable)
        for name, layer in zip(names, made.layers, strict=True)
        for i, variable in enumerate(layer.variables)
    }
    states = {f"optimizer/vars/{i}": np.array(v) for i, v in enumerate(made.optimizer.variables)}
    legacy = {
        f"{layer.name}/{variable.path}": np.array(variable)
        for layer in made.layers
        for variable in layer.variables
    }
    return {
        "model.keras": weights | states,
        "model.weights.h5": weights | states,
        "legacy.h5": {f"model_weights/{name}": value for name, value in legacy.items()}
        | {f"optimizer_weights/{v.path}": np.array(v) for v in made.optimizer.variables},
        "legacy_weights.h5": legacy,
    }


def main(directory: Path, weights: str | None) -> None:
    made = model()
    from keras.src.legacy.saving import legacy_h5_format

    if weights is not None and weights.endswith(".keras"):
        import keras

        made = keras.saving.load_model(weights)
    elif weights is not None:
        for variable in (*made.variables, *made.optimizer.variables):
            variable.assign(np.zeros(variable.shape))
        made.load_weights(weights)
    directory.mkdir(parents=True, exist_ok=True)
    made.save(directory / "model.keras")
    made.save_weights(directory / "model.weights.h5")
    made.save(directory / "legacy.h5")
    with h5py.File(directory / "legacy_weights.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, made)
    values = {f"{file}:{key}": v for file, arrays in arrays_of(made).items() for key, v in arrays.items()}
    np.savez_compressed(directory / VALUES, **values)


if __name__ == "__main__":
    place, *given = sys.argv[1:] or [str(DATA)]
    main(Path(place), given[0] if given else None)
