"""The tables of published models are what the library that saves such files makes."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.recipes.keytables import NAMES, keytable
from tests.support.slow import slow

OLD = Path(__file__).parents[1] / "data" / "keytables"


@pytest.mark.parametrize(
    "name",
    [name if name == "qwen3-0.6b" else slow(name) for name in NAMES],
)
def test_made_anew(name: str) -> None:
    from tests.recipes.make_keytables import made  # imports transformers

    config, table = made(keytable(name).config)
    known = keytable(name)
    version = {"transformers_version"}  # the library's version when the table was made
    assert {k: v for k, v in config.items() if k not in version} == {
        k: v for k, v in known.config.items() if k not in version
    }
    assert {key: (dtype, tuple(shape)) for key, (dtype, shape) in table.items()} == known.tensors


@pytest.mark.parametrize("name", ["llama3.1-8b", "gemma2-2b", "qwen3-0.6b", "t5-small"])
def test_names_and_shapes_are_those_of_files_that_were_published(name: str) -> None:
    """Of four models these were listed from the files themselves."""
    listed = json.loads((OLD / f"{name}.json").read_text())["disk"]
    made_here = {key: list(shape) for key, (_, shape) in keytable(name).tensors.items()}
    assert made_here == listed


def test_a_model_that_is_saved_has_these_names(tmp_path: Path) -> None:
    """True counts of layers and experts, tiny widths, and the library's own files."""
    import transformers

    known = keytable("mixtral-8x7b")
    tiny = {"hidden_size": 8, "intermediate_size": 4, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.MixtralConfig.from_dict({**known.config, **tiny, "vocab_size": 8, "head_dim": 4})
    transformers.MixtralForCausalLM(config).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "numpy") as file:
        assert set(file.keys()) == set(known.tensors)
