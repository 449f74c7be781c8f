"""The models that packaged recipes convert, and their layouts: what `convert --to` chooses from.

Data only. `docs/models.md` lists it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

HF = "hf"
"""The layout of Hugging Face transformers, which all others are converted from and to."""


@dataclass(frozen=True)
class Run:
    """A packaged recipe with the values that some of its params are given."""

    recipe: str
    """Its name, with the `@`."""
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """A layout of a model other than that of Hugging Face."""

    name: str
    """What `--to` calls it."""
    there: Run
    """From the layout of Hugging Face."""
    back: Run
    """To the layout of Hugging Face, from a checkpoint without a record of a conversion."""
    key: str
    """A key that every checkpoint of this layout holds, and none of the model's other layouts."""
    computed: str = ""
    """What is computed and rounded once; empty: nothing, everything is exact to the bit."""
    proofs: tuple[str, ...] = ()
    """Files of tests that prove it."""


@dataclass(frozen=True)
class Model:
    """A kind of model."""

    title: str
    model_types: tuple[str, ...]
    """What `model_type` in its config.json may be."""
    sizes: tuple[str, ...]
    """Names of published sizes."""
    key: str
    """A key that every checkpoint of it holds in the layout of Hugging Face."""
    layouts: tuple[Layout, ...]

    def layout(self, name: str) -> Layout | None:
        """The layout of this name; None where the model has none."""
        return next((one for one in self.layouts if one.name == name), None)


_LAYOUTS = "tests/recipes/test_layouts.py"
_LOGITS = "tests/recipes/test_logits.py"
_MAXTEXT = "tests/recipes/test_maxtext.py"
_TUNIX = "tests/recipes/test_tunix.py"
_QUERY = "the scale of queries"
_EMBEDDING = "params/token_embedder/embedding"


def _decoder(recipe: str, names: str, computed: str = "", jax: str = "", **back: str) -> tuple[Layout, ...]:
    """The layouts `names` of a decoder. `recipe`: the middle of the names of its two recipes; `computed`: see
    `Layout`, for MaxText; `jax`: the same for the layout `jax`; `back`: params of the recipe back.
    """
    keys = {"jax": _EMBEDDING, "maxtext": f"params/{_EMBEDDING}", "tunix": "embedder/input_embedding/value"}
    proofs = {"jax": (_LAYOUTS, _LOGITS), "maxtext": (_MAXTEXT,), "tunix": (_TUNIX,)}
    rounded = {"jax": jax, "maxtext": computed}
    return tuple(
        Layout(
            name,
            Run(f"@hf-{recipe}-to-jax", {"layout": name}),
            Run(f"@jax-to-hf-{recipe}", {"layout": name, **back}),
            keys[name],
            rounded.get(name, ""),
            proofs[name],
        )
        for name in names.split()
    )


_DECODER_KEY = "model.embed_tokens.weight"
_ALL = "jax maxtext tunix"

MODELS = (
    Model(
        "Llama",
        ("llama",),
        (
            *("Llama 2 7B", "Llama 2 13B", "Llama 2 70B", "Llama 3 8B", "Llama 3 70B", "Llama 3.1 8B"),
            *("Llama 3.1 70B", "Llama 3.1 405B", "Llama 3.2 1B", "Llama 3.2 3B", "Llama 3.3 70B"),
        ),
        _DECODER_KEY,
        _decoder("llama3", _ALL, _QUERY),
    ),
    Model("Mistral", ("mistral",), ("Mistral 7B",), _DECODER_KEY, _decoder("llama3", "jax maxtext", _QUERY)),
    Model(
        "Qwen2",
        ("qwen2",),
        (
            *("Qwen2 0.5B", "Qwen2 1.5B", "Qwen2 7B", "Qwen2 72B", "Qwen2.5 0.5B", "Qwen2.5 1.5B"),
            *("Qwen2.5 3B", "Qwen2.5 7B", "Qwen2.5 14B", "Qwen2.5 32B", "Qwen2.5 72B"),
        ),
        _DECODER_KEY,
        _decoder("qwen2", _ALL),
    ),
    Model(
        "Qwen3",
        ("qwen3",),
        ("Qwen3 0.6B", "Qwen3 1.7B", "Qwen3 4B", "Qwen3 8B", "Qwen3 14B", "Qwen3 32B"),
        _DECODER_KEY,
        _decoder("qwen3", _ALL),
    ),
    Model(
        "Qwen3-MoE",
        ("qwen3_moe",),
        ("Qwen3 30B-A3B", "Qwen3 235B-A22B"),
        _DECODER_KEY,
        _decoder("moe", _ALL, family="qwen3_moe"),
    ),
    Model(
        "Gemma 2",
        ("gemma2",),
        ("Gemma 2 2B", "Gemma 2 9B", "Gemma 2 27B"),
        _DECODER_KEY,
        _decoder(
            "gemma2",
            _ALL,
            f"{_QUERY}, that of the embedding, and the 1 that norms add",
            "the 1 that norms add, unless norm_plus_one=false",
        ),
    ),
    Model(
        "Mixtral",
        ("mixtral",),
        ("Mixtral 8x7B", "Mixtral 8x22B"),
        _DECODER_KEY,
        _decoder("moe", "jax maxtext", _QUERY, family="mixtral"),
    ),
    Model(
        "T5",
        ("t5",),
        (
            *("T5 small", "T5 base", "T5 large", "T5 3B", "T5 11B", "T5 1.1 small", "T5 1.1 base"),
            *("T5 1.1 large", "T5 1.1 XL", "T5 1.1 XXL"),
        ),
        "shared.weight",
        (
            Layout(
                "t5x",
                Run("@hf-t5-to-t5x"),
                Run("@t5x-hf-t5"),
                "target/token_embedder/embedding",
                proofs=("tests/recipes/test_t5.py",),
            ),
        ),
    ),
)
"""All of them."""


def layouts() -> tuple[str, ...]:
    """What `--to` can be: the names of all layouts, that of Hugging Face last."""
    return (*dict.fromkeys(one.name for model in MODELS for one in model.layouts), HF)


def model_of(model_type: str) -> Model | None:
    """The model whose config.json has this `model_type`; None for an unknown one."""
    return next((model for model in MODELS if model_type in model.model_types), None)
