"""Make the small models and mergekit's merges of them that the tests compare with.

    python -m venv mergekit && mergekit/bin/pip install torch==2.13.0 mergekit==0.1.5
    mergekit/bin/python tests/merging/make_outputs.py

It writes tests/data/merging: `models/NAME.npz` and `outputs/CASE.npz`, arrays of float32 by the tensor's
name. Only this script runs mergekit, which is not needed for the tests.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from safetensors.numpy import save_file
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.merging.cases import CASES, HALVED, MODELS  # noqa: E402  (the script is not run as a module)

DATA = ROOT / "tests" / "data" / "merging"
LAYERS, WIDTH, INNER, VOCABULARY = 3, 16, 16, 24
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": 2,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": VOCABULARY,
}


def weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights of a model."""
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (WIDTH // 2, WIDTH),
        "self_attn.v_proj": (WIDTH // 2, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
        "input_layernorm": (WIDTH,),
        "post_attention_layernorm": (WIDTH,),
    }
    layers = {f"model.layers.{i}.{name}.weight": s for i in range(LAYERS) for name, s in shapes.items()}
    ends = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    every = {**layers, **ends, "model.norm.weight": (WIDTH,)}
    return {name: rng.normal(scale=0.1, size=shape).astype(np.float32) for name, shape in every.items()}


def made_models() -> dict[str, dict[str, np.ndarray]]:
    """The models by name. The last two are the base and a little more."""
    models = {name: weights(np.random.default_rng(i)) for i, name in enumerate(MODELS)}
    for name, share in (("code", 0.5), ("chat", 0.01)):
        models[name] = {key: models["base"][key] + np.float32(share) * x for key, x in models[name].items()}
    return models


def merged(config: dict[str, object], directory: Path) -> dict[str, np.ndarray]:
    """What mergekit makes of a configuration whose models lie in a directory."""
    text = json.dumps(config)
    for name in MODELS:
        text = text.replace(f'"{name}"', json.dumps(str(directory / name)))
    out = directory / "out"
    options = MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True)
    run_merge(MergeConfiguration.model_validate(json.loads(text)), str(out), options)
    files = sorted(out.glob("*.safetensors"))
    tensors = {name: x for file in files for name, x in load_file(file).items()}
    for file in out.iterdir():
        file.unlink()
    return {name: x.to(torch.float32).numpy() for name, x in tensors.items()}


def halved(probabilities: torch.Tensor) -> torch.Tensor:
    """Stands for a draw: all that have a probability above one half."""
    return (probabilities > 0.5).to(probabilities.dtype)


def main() -> None:
    drawn = torch.bernoulli
    for folder in ("models", "outputs"):
        (DATA / folder).mkdir(parents=True, exist_ok=True)
    models = made_models()
    with tempfile.TemporaryDirectory() as temporary:
        for name, arrays in models.items():
            np.savez_compressed(DATA / "models" / f"{name}.npz", **arrays)
            place = Path(temporary, name)
            place.mkdir()
            save_file(arrays, place / "model.safetensors", {"format": "pt"})
            (place / "config.json").write_text(json.dumps(CONFIG))
        for name, config in CASES.items():
            torch.bernoulli = halved if name in HALVED else drawn
            np.savez_compressed(DATA / "outputs" / f"{name}.npz", **merged(config, Path(temporary)))
            print(name)


if __name__ == "__main__":
    main()
