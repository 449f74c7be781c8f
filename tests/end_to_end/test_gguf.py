"""Models of llama.cpp in: what plans say of quantized leaves, and what comes out in other formats."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

import ckpt_surgery
from ckpt_surgery import restore
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.gguf.blocks import UNDECODED
from tests.formats.gguf.files import dequantized, save, save_blocks, stored_blocks
from tests.support.arrays import array
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.plans import transfers_of
from tests.support.reading import read

PLAIN = {"norm": array((64,), "float32"), "head": array((8, 64), "float16")}


def finite_blocks(type: Type, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random blocks whose scales are one."""
    blocks = stored_blocks(shape, type, seed)
    each = blocks.reshape(-1, gguf.GGML_QUANT_SIZES[type][1])
    for place in {Type.Q4_K: (0, 2), Type.Q6_K: (208,)}.get(type, (0,)):
        each[:, place : place + 2] = np.array([0x3C00], "<u2").view(np.uint8)
    return blocks


def a_model(path: Path, *types: Type) -> tuple[Path, dict[str, np.ndarray]]:
    """A file with a leaf of each of these types, and others; and the values of those that are read."""
    stored = {f"blk.{i}.w": (type, finite_blocks(type, (8, 512), i)) for i, type in enumerate(types)}
    values = {n: dequantized(*one) for n, one in stored.items() if one[0].name not in UNDECODED}
    return save_blocks(stored, path, PLAIN), values | PLAIN


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    return a_model(tmp_path / "model.gguf", Type.Q8_0, Type.Q4_0, Type.Q4_K, Type.Q6_K, Type.Q4_K)


def test_blocks_become_numbers(model: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path, values = model
    result = ckpt_surgery.convert(path, tmp_path / "out")
    assert_same(read(tmp_path / "out"), values)
    told = [warning for warning in result.plan.warnings if "stored as" in warning]
    assert told == [
        "dequantized to float32: leaves that are stored as Q4_K (2), Q8_0 (1), Q4_0 (1), Q6_K (1)"
    ]
    transfers = transfers_of(result.plan)
    assert {transfers[key] for key in values.keys() - PLAIN.keys()} == {"compute"}
    assert not {transfers[key] for key in PLAIN} & {"compute"}


def test_only_leaves_that_are_read_count(model: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    for pattern, told in (
        ("blk.[1-4].w", ("dequantized to float32: leaves that are stored as Q8_0 (1)",)),
        ("blk.*", ()),
    ):
        recipe = f"version: 1\nrules: [{{match: '{pattern}', drop: true}}]"
        assert applying.plan(recipe, model[0], dst=tmp_path / "out").warnings == told


def test_types_that_are_not_read_are_refused_when_they_are_used(tmp_path: Path) -> None:
    """All of them at once, before anything is written; dropped, they are nobody's concern."""
    path, values = a_model(tmp_path / "m.gguf", Type.Q8_0, Type.Q8_K, Type.Q1_0, Type.Q8_K)
    for run_it in (
        lambda: applying.plan(None, path, dst=tmp_path / "out"),
        lambda: ckpt_surgery.convert(path, tmp_path / "out"),
        lambda: restore(None, path),
    ):
        with pytest.raises(SourceError) as caught:
            run_it()
        told = [re.findall(r"stored as (\w+)", problem.message) for problem in caught.value.problems]
        assert told == [["Q8_K"], ["Q1_0"]]
    assert not (tmp_path / "out").exists()
    recipe = "version: 1\nrules: [{match: 'blk.[123].w', drop: true}]"
    applying.apply(recipe, path, dst=tmp_path / "out")
    assert_same(read(tmp_path / "out"), {"blk.0.w": values["blk.0.w"], **PLAIN})


def test_without_the_library_a_plan_says_what_to_install(
    model: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(SourceError, match="stored as Q4_K, which needs the package gguf") as caught:
        applying.plan(None, model[0], dst=tmp_path / "out")
    assert all("`pip install gguf`" in str(problem.hint) for problem in caught.value.problems)
    assert "Q4_K in 2 leaves (needs the package gguf)" in " ".join(run("inspect", model[0]).stdout.split())
    recipe = "version: 1\nrules: [{match: 'blk.*', drop: true}]"
    applying.apply(recipe, model[0], dst=tmp_path / "out")
    assert_same(read(tmp_path / "out"), PLAIN)


def test_what_inspect_and_diff_say(tmp_path: Path) -> None:
    path, _ = a_model(tmp_path / "m.gguf", Type.Q8_0, Type.Q8_K, Type.Q8_0)
    assert "stored as Q8_0 in 2 leaves, Q8_K in 1 leaf (cannot be read)" in run("inspect", str(path)).stdout
    assert "[8,512] C Q8_K" in run("inspect", "-v", str(path)).stdout
    found: dict[str, Any] = json.loads(run("inspect", str(path), "--json", "-", "--stats").stdout)
    leaves = {leaf["key"]: leaf for leaf in found["leaves"]}
    stored = [leaves[key].get("stored_as") for key in ("blk.0.w", "blk.1.w", "norm")]
    assert stored == ["Q8_0", "Q8_K", None]
    assert leaves["blk.1.w"]["unread"] == "it is stored as Q8_K, which cannot be read"
    assert "mean" in leaves["blk.0.w"]
    assert found["metadata"] == {"general.architecture": "llama"}
    uncompared = ckpt_surgery.diff(path, path, values=True).uncompared or ()
    told = [("blk.1.w", "it is stored as Q8_K, which cannot be read")]
    assert [(one.key, one.why) for one in uncompared] == told


def test_the_metadata_is_the_config_of_recipes(tmp_path: Path) -> None:
    """Where no config.json lies beside the file."""

    def about(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(2)
        writer.add_array("llama.feed_forward_length", [64, 32])
        writer.add_array("tokenizer.ggml.tokens", ["w"] * 1000)

    (tmp_path / "in").mkdir()
    path = save({"x": np.ones(4, np.float32)}, tmp_path / "in" / "m.gguf", about)
    recipe = (
        "version: 1\nparams: {n: {default: 7, config: llama.block_count}}\n"
        "rules: [{match: x, value: \"x * n + config['llama.feed_forward_length'][1]\"}]"
    )
    applying.apply(recipe, path, dst=tmp_path / "out")
    assert read(tmp_path / "out")["x"].tolist() == [34.0] * 4
    kept = ckpt_surgery.inspect(tmp_path / "out").metadata
    assert kept["llama.block_count"] == 2
    assert kept["tokenizer.ggml.tokens"] == {"type": "string", "length": 1000}
    (path.parent / "config.json").write_text('{"llama.block_count": 3, "llama.feed_forward_length": [0, 0]}')
    applying.apply(recipe, path, dst=tmp_path / "again")
    assert read(tmp_path / "again")["x"].tolist() == [3.0] * 4


# --- the recipe of the cookbook ---------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/cookbook/gguf.md"


@pytest.mark.slow("measures the memory of a process")
def test_transformers_reads_the_same_from_a_llama(tmp_path: Path) -> None:
    """Which has a reader of its own: both undo what the converter does to query and key."""
    from transformers import AutoModelForCausalLM

    sizes = {"heads": 4, "kv_heads": 2, "width": 64, "inner": 96, "words": 50}
    layer: dict[str, tuple[int, ...]] = {"attn_norm": (64,), "attn_q": (64, 64), "attn_output": (64, 64)}
    layer |= {"attn_k": (32, 64), "attn_v": (32, 64), "ffn_norm": (64,), "ffn_gate": (96, 64)}
    layer |= {"ffn_up": (96, 64), "ffn_down": (64, 96)}
    shapes = {"token_embd": (50, 64), "output_norm": (64,), "output": (50, 64)} | {
        f"blk.{i}.{name}": shape for i in range(2) for name, shape in layer.items()
    }

    def about(writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(2)
        writer.add_context_length(64)
        writer.add_embedding_length(sizes["width"])
        writer.add_feed_forward_length(sizes["inner"])
        writer.add_head_count(sizes["heads"])
        writer.add_head_count_kv(sizes["kv_heads"])
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10_000.0)
        writer.add_vocab_size(sizes["words"])

    arrays = {f"{name}.weight": array(shape, "float32", i) for i, (name, shape) in enumerate(shapes.items())}
    (tmp_path / "model").mkdir()
    path = save(arrays, tmp_path / "model" / "m.gguf", about)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model", gguf_file="m.gguf").state_dict()
    shown = re.search(r"```yaml\n# gguf-llama\.yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown
    applying.apply(shown[1], path, dst=tmp_path / "out.safetensors")
    ours = read(tmp_path / "out.safetensors")
    assert_same(ours, {name: theirs[name].float().numpy() for name in ours})
    assert ours.keys() == theirs.keys()
