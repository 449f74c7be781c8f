"""Two models merged, beside mergekit: its own configurations, in turns with the tool.

mergekit has other requirements than the tool's tests, so it lives in a virtual environment of its own, which
is made where the caller names a directory for it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cases import OURS, TOOL, Bench
from benchmarks.llama import LLAMA_8B, Llama, shrunken
from benchmarks.measure import Measured, measure_in_turns
from benchmarks.tables import Limit, Line

VERSION = "mergekit==0.1.5"
RATIO, PART_OF_PEAK = 0.3, 0.2
"""Limits: of mergekit's time, and of its peak memory."""
MEMORY = "192MiB"
"""Our budget. Merges take no longer with it than with the default one, of which they would use more."""
_BOTH = [{"model": "first"}, {"model": "second", "parameters": {"weight": 1.0, "density": 0.5}}]

CONFIGS: dict[str, dict[str, object]] = {
    "linear": {
        "merge_method": "linear",
        "models": [{"model": name, "parameters": {"weight": 0.5}} for name in ("first", "second")],
    },
    "slerp": {
        "merge_method": "slerp",
        "base_model": "first",
        "models": [{"model": name} for name in ("first", "second")],
        "parameters": {"t": 0.4},
    },
    "ties": {"merge_method": "ties", "base_model": "first", "models": _BOTH},
    "passthrough": {
        "merge_method": "passthrough",
        "slices": [
            {"sources": [{"model": "first", "layer_range": [0, 24]}]},
            {"sources": [{"model": "second", "layer_range": [8, 32]}]},
        ],
    },
}
"""Configurations by the name of the method. All write bfloat16."""


def merge(bench: Bench) -> Iterator[Line]:
    """Two models in bfloat16, half of the size each, by four methods."""
    model = shrunken(LLAMA_8B, bench.nbytes // 2, "BF16")
    for seed, name in enumerate(("first", "second")):
        os.rename(bench.checkpoint("llama", bench.nbytes // 2, seed), bench.scratch / name)
        (bench.scratch / name / "config.json").write_text(json.dumps(described(model)))
    peer = mergekit(bench.mergekit)
    for method, config in CONFIGS.items():
        path = bench.scratch / f"{method}.yaml"
        path.write_text(json.dumps({**placed(config, bench.scratch), "dtype": "bfloat16"}))
        yield from _merged(bench, method, path, peer)


def _merged(bench: Bench, method: str, config: Path, peer: Path | str) -> Iterator[Line]:
    """The lines for one configuration; `peer` is mergekit's program, or why there is none."""
    out, clear = bench.fresh()
    ours = [TOOL, "merge", "--quiet", "--link-mode", "copy", "--memory", MEMORY, str(config), out]
    commands = [ours]
    if isinstance(peer, Path):
        commands.append(
            [str(peer), "--quiet", "--no-copy-tokenizer", "--no-write-model-card", str(config), out]
        )
    measured, *others = measure_in_turns(commands, bench.runs, clear)
    clear()
    work, size = f"merge two models by {method}", bench.nbytes / 1e9
    line = Line(work, OURS, measured, size, "GB")
    if not isinstance(peer, Path):
        yield line.within(Limit(ratio=RATIO), f"{_processor(measured)}; no mergekit: {peer}")
        return
    [theirs] = others
    limit = Limit(ratio=RATIO, peak=int(PART_OF_PEAK * theirs.peak))
    yield line.within(limit, f"{_processor(measured)}, {measured.processor / theirs.processor:.2f} × peer")
    yield Line(work, VERSION, theirs, size, "GB", is_peer=True, note=_processor(theirs))


def _processor(measured: Measured) -> str:
    return f"{measured.processor:.1f} s of processor time"


def mergekit(environment: Path | None) -> Path | str:
    """mergekit's program in a virtual environment, which is made if it is not there; or why there is none."""
    if environment is None:
        return "`--mergekit DIRECTORY` makes an environment for it"
    program = environment / "bin" / "mergekit-yaml"
    if not program.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
            pip = [str(environment / "bin" / "pip"), "install", "--quiet", VERSION]
            subprocess.run(pip, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"it could not be installed ({error})"
    return program


def placed(config: dict[str, object], models: Path) -> dict[str, object]:
    """The configuration with the paths of the models."""
    text = json.dumps(config)
    for name in ("first", "second"):
        text = text.replace(f'"{name}"', json.dumps(str(models / name)))
    found: dict[str, object] = json.loads(text)
    return found


def described(model: Llama) -> dict[str, object]:
    """The `config.json` of a model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.embed,
        "intermediate_size": model.mlp,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "num_hidden_layers": model.layers,
        "vocab_size": model.vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
