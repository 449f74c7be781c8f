"""What the Flax classes of transformers 4.53.3, the last version with them, make of PyTorch's weights.

    python -m tests.recipes.peers.flax_classes PYTHON SCRATCH [RECORD ...]

in an environment of its own (Python 3.11; transformers 4.53.3, torch 2.13.0, jax and jaxlib 0.4.30,
flax 0.8.5, numpy 1.26.4), with the root of the repository as the working directory. PYTHON is the interpreter
of an environment that has ckpt-surgery; SCRATCH is a directory for the models.

For each class a tiny model of the sizes in its record is saved by PyTorch's class and gets the weights of
tests/recipes/flax_weights.py. A new class begins with a record of its config and its names of weights.
Flax's class loads it with `from_pt=True`; both must compute the same, and Flax's class must load what
`@hf-to-flax` makes, with the same tree and without a word of missing or unexpected weights. What is recorded
in tests/data/flax_classes: the config; names, dtypes and shapes of the weights; those and a digest of each
leaf of the tree; some outputs of Flax's class.
"""

import gzip
import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import transformers
from flax.serialization import msgpack_restore
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from tests.recipes.flax_weights import inputs, told, weights

DATA = Path("tests/data/flax_classes")
CLOSE = 1e-5
"""Largest difference of outputs, relative to the largest value of an output or to 1."""

PT_NAMES = {"BertForCausalLM": "BertLMHeadModel"}
"""Classes of PyTorch that have another name."""
INPUTS = {
    **dict.fromkeys(("vit", "clip_vision_model", "beit", "dinov2", "resnet", "regnet"), ("pixel_values",)),
    **dict.fromkeys(("whisper", "whisper_encoder"), ("input_features",)),
    "clip": ("input_ids", "pixel_values"),
    "electra": ("input_ids", "token_type_ids"),  # Flax alone takes ones by default
    "wav2vec2": ("input_values",),
}
"""Arguments of a record's models, besides those of the decoder, that are not `input_ids` alone."""
ENCODERS = ("T5EncoderModel", "WhisperForAudioClassification")
"""Classes of a model with a decoder that have none."""


class Said(logging.Handler):
    """Collects what transformers says of weights that are missing, unexpected or of another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if any(word in text for word in ("were not", "newly initialized", "mismatch")):
            self.messages.append(text)


SAID = Said()


def arrays(outputs: Any) -> dict[str, np.ndarray]:
    found = {}
    for name, value in outputs.items():
        if isinstance(value, (torch.Tensor, jax.Array)):
            found[name] = np.asarray(value.detach() if isinstance(value, torch.Tensor) else value)
    return found


def saved(name: str, record: dict[str, Any], place: Path) -> Any:
    """A model as its library saves it, with the weights that Flax does not compute; its class."""
    pt_class = getattr(transformers, PT_NAMES.get(name, name))
    config = transformers.CONFIG_MAPPING[record["config"]["model_type"]].from_dict(record["config"])
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    shutil.rmtree(place, ignore_errors=True)
    pt_class(config).save_pretrained(place)
    found = load_file(place / "model.safetensors")
    described = {key: [str(found[key].dtype), *found[key].shape] for key in record["weights"]}
    assert described == record["weights"]
    save_file(weights(described), place / "model.safetensors", metadata={"format": "pt"})
    return pt_class


def flat(params: Any) -> dict[str, np.ndarray]:
    return {"/".join(key): np.asarray(array) for key, array in sorted(flatten_dict(params).items())}


def compute(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if isinstance(model, torch.nn.Module):
        with torch.no_grad():
            out = arrays(model.eval()(**{key: torch.from_numpy(array) for key, array in given.items()}))
    else:
        out = arrays(model(**given))
    return out


def compare(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """The largest difference of outputs that both have."""
    both = [key for key in ours if key in theirs and ours[key].shape == theirs[key].shape]
    assert both, (sorted(ours), sorted(theirs))
    return max(
        float(np.abs(ours[key] - theirs[key]).max() / max(1.0, np.abs(theirs[key]).max())) for key in both
    )


def loaded(flax_class: Any, place: Path, **options: Any) -> Any:
    SAID.messages.clear()
    model = flax_class.from_pretrained(place, **options)
    assert not SAID.messages, SAID.messages
    return model


def inputs_of(case: str, name: str, config: dict[str, Any]) -> dict[str, np.ndarray]:
    names = ["decoder_input_ids"] if config.get("is_encoder_decoder") and name not in ENCODERS else []
    given = inputs([*INPUTS.get(case, ("input_ids",)), *names], config)
    if name.endswith("MultipleChoice"):
        given = {key: array[:, None] for key, array in given.items()}
    if name.endswith("ForSequenceClassification"):
        given.pop("decoder_input_ids", None)  # PyTorch's class makes them
    return given


def prove(case: str, name: str, record: dict[str, Any], python: str, place: Path) -> dict[str, Any]:
    pt_class, flax_class = saved(name, record, place), getattr(transformers, f"Flax{name}")
    flax_model = loaded(flax_class, place, from_pt=True)
    config = json.loads((place / "config.json").read_text())
    given = inputs_of(case, name, config)
    theirs = compute(flax_model, given)
    pt_model = pt_class.from_pretrained(place, attn_implementation="eager")
    apart = compare(theirs, compute(pt_model, given))
    tree = flat(flax_model.params)
    command = [python, "-m", "ckpt_surgery", "apply", "@hf-to-flax", str(place / "model.safetensors")]
    out = place / "flax" / "flax_model.msgpack"
    out.parent.mkdir()
    shutil.copy(place / "config.json", out.parent)
    ran = subprocess.run([*command, str(out)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert {key: told(array) for key, array in flat(msgpack_restore(out.read_bytes())).items()} == {
        key: told(array) for key, array in tree.items()
    }
    assert compare(compute(loaded(flax_class, out.parent), given), theirs) == 0.0
    assert apart <= CLOSE, apart
    print(
        f"{name}: {len(record['weights'])} weights, {len(tree)} leaves, outputs {apart:.1e} apart", flush=True
    )
    outputs = {key: np.asarray(array) for key, array in theirs.items() if key in record["outputs"]}
    return {
        "config": config,
        "weights": record["weights"],
        "tree": {key: told(array) for key, array in tree.items()},
        "outputs": {
            key: {"shape": array.shape, "values": [float(f"{value:.7g}") for value in array.ravel()]}
            for key, array in outputs.items()
        },
    }


def main(python: str, scratch: str, *wanted: str) -> None:
    logging.getLogger("transformers").addHandler(SAID)
    for case in wanted or sorted(path.name.removesuffix(".json.gz") for path in DATA.iterdir()):
        file = DATA / f"{case}.json.gz"
        records = json.loads(gzip.decompress(file.read_bytes()))
        proved = {
            name: prove(case, name, record, python, Path(scratch) / name) for name, record in records.items()
        }
        file.write_bytes(gzip.compress(json.dumps(proved, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
