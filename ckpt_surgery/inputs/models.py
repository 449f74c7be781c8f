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
    """A regular expression that a key matches in every checkpoint of this layout, and in none of the model's
    other layouts."""
    computed: str = ""
    """What is computed and rounded once; empty: nothing, everything is exact to the bit."""
    proofs: tuple[str, ...] = ()
    """Files of tests that prove it."""
    sizes: tuple[str, ...] = ()
    """The published sizes that it is for; empty: all of the model's."""
    axis: str = ""
    """Param of the recipe back for the axis of stacked layers; empty: the layout has no stacks."""
    block: tuple[str, str] | None = None
    """Param of the recipe back that names a module, and the name that is not its default."""

    @property
    def usual_axis(self) -> int:
        """The axis of stacked layers unless the param `axis` says otherwise."""
        return int(self.name == "maxtext")


@dataclass(frozen=True)
class Model:
    """A kind of model."""

    title: str
    model_types: tuple[str, ...]
    """What `model_type` in its config.json may be."""
    sizes: tuple[str, ...]
    """Names of the published sizes whose names and shapes the tests plan."""
    key: str
    """A regular expression that a key matches in every checkpoint that has the layout of Hugging Face."""
    layouts: tuple[Layout, ...]

    def layout(self, name: str) -> Layout | None:
        """The layout of this name; None where the model has none."""
        return next((one for one in self.layouts if one.name == name), None)


_LAYOUTS = "tests/recipes/test_layouts.py"
_LOGITS = "tests/recipes/test_logits.py"
_MAXTEXT = "tests/recipes/test_maxtext.py"
_TUNIX = "tests/recipes/test_tunix.py"
_FLAX = ("tests/recipes/test_flax_classes.py", "tests/recipes/test_flax_logits.py")
_PEERS = "tests/recipes/test_peers.py"
_QUERY = "the scale of queries"
_NORMS = "the 1 that norms add"
_EMBEDDING = "params/token_embedder/embedding"
_KEYS = {
    "jax": _EMBEDDING,
    "maxtext": "(params/params/|base/)?token_embedder/embedding(/value)?",
    "tunix": "embedder/input_embedding(/value)?",
}
_AXES = {"jax": "layer_axis", "maxtext": "param_scan_axis"}


_PROOFS = {"jax": (_LAYOUTS, _LOGITS), "maxtext": (_MAXTEXT, _PEERS), "tunix": (_TUNIX, _PEERS)}


def _decoder(
    recipe: str,
    names: str,
    computed: str = "",
    jax: str = "",
    proofs: Mapping[str, tuple[str, ...]] = _PROOFS,
    **back: str,
) -> tuple[Layout, ...]:
    """The layouts `names` of a decoder. `recipe`: the middle of the names of its two recipes; `computed`: see
    `Layout`, for MaxText; `jax`: the same for the layout `jax`; `proofs`: tests of each
    layout; `back`: params of the recipe back.
    """
    rounded = {"jax": jax, "maxtext": computed}
    return tuple(
        Layout(
            name,
            Run(f"@hf-{recipe}-to-jax", {"layout": name}),
            Run(f"@jax-to-hf-{recipe}", {"layout": name, **back}),
            _KEYS[name],
            rounded.get(name, ""),
            proofs[name],
            axis=_AXES.get(name, ""),
            block=("moe_block", "moe_block") if (recipe, name) == ("moe", "jax") else None,
        )
        for name in names.split()
    )


def _flax(key: str = r".*/kernel", *sizes: str) -> Layout:
    """The trees of the Flax classes of Transformers, for all sizes or these."""
    return Layout("flax", Run("@hf-to-flax"), Run("@flax-to-hf"), key, proofs=_FLAX, sizes=sizes)


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/recipes/test_{name}.py" for name in names)


_DECODER_KEY = r"model\.embed_tokens\.weight"
_TEXT_KEY = r"(language_model\.)?model\.(language_model\.)?embed_tokens\.weight"
_ALL = "jax maxtext tunix"
_FLAX_LAYERS = r"(model/)?layers/\d+/.*/kernel"

MODELS = (
    Model(
        "Llama",
        ("llama",),
        (
            *("Llama 2 7B", "Llama 2 13B", "Llama 2 70B", "Llama 3 8B", "Llama 3 70B", "Llama 3.1 8B"),
            *("Llama 3.1 70B", "Llama 3.1 405B", "Llama 3.2 1B", "Llama 3.2 3B", "Llama 3.3 70B"),
        ),
        _DECODER_KEY,
        (
            *_decoder("llama3", _ALL, _QUERY),
            _flax(_FLAX_LAYERS, "Llama 2 7B", "Llama 2 13B", "Llama 2 70B"),
        ),
    ),
    Model(
        "Llama 4",
        ("llama4", "llama4_text"),
        ("Llama 4 Scout", "Llama 4 Maverick"),
        _TEXT_KEY,
        _decoder(
            "llama4", "jax maxtext", proofs={"jax": _tests("llama4"), "maxtext": _tests("maxtext_models")}
        ),
    ),
    Model(
        "Mistral",
        ("mistral",),
        ("Mistral 7B v0.1", "Mistral 7B v0.3", "Mistral Nemo 12B", "Mistral Small 24B"),
        _DECODER_KEY,
        (
            *_decoder("llama3", "jax maxtext", _QUERY, proofs=_PROOFS | {"maxtext": (_MAXTEXT,)}),
            _flax(_FLAX_LAYERS, "Mistral 7B v0.1"),
        ),
    ),
    Model(
        "Mixtral",
        ("mixtral",),
        ("Mixtral 8x7B", "Mixtral 8x22B"),
        _DECODER_KEY,
        _decoder(
            *("moe", "jax maxtext", _QUERY),
            proofs=_PROOFS | {"jax": (_LAYOUTS, _LOGITS, *_tests("kerashub"))},
            family="mixtral",
        ),
    ),
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
    Model("Gemma", ("gemma",), ("Gemma 2B", "Gemma 7B"), _DECODER_KEY, (_flax(_FLAX_LAYERS),)),
    Model(
        "Gemma 2",
        ("gemma2",),
        ("Gemma 2 2B", "Gemma 2 9B", "Gemma 2 27B"),
        _DECODER_KEY,
        _decoder(
            "gemma2",
            _ALL,
            f"{_QUERY}, that of the embedding, and {_NORMS}",
            f"{_NORMS}, unless norm_plus_one=false",
        ),
    ),
    Model(
        "Gemma 3",
        ("gemma3", "gemma3_text"),
        ("Gemma 3 270M", "Gemma 3 1B", "Gemma 3 4B", "Gemma 3 12B", "Gemma 3 27B"),
        _TEXT_KEY,
        _decoder(
            "gemma3",
            _ALL,
            f"the scale of the embedding, and {_NORMS}",
            f"{_NORMS}, unless norm_plus_one=false",
            proofs={
                "jax": _tests("gemma3", "gemma3_logits"),
                "maxtext": _tests("peer_outputs"),
                "tunix": _tests("gemma3", "peer_outputs"),
            },
        ),
    ),
    Model(
        "gpt-oss",
        ("gpt_oss",),
        ("gpt-oss 20B", "gpt-oss 120B", "gpt-oss 20B bf16"),
        _DECODER_KEY,
        _decoder(
            "gpt-oss",
            "jax maxtext",
            "experts in MXFP4, which become bfloat16 and stay it on the way back",
            "experts in MXFP4, which become bfloat16 and stay it on the way back",
            proofs={"jax": _tests("gpt_oss", "gpt_oss_logits"), "maxtext": _tests("peer_outputs")},
        ),
    ),
    Model(
        "DeepSeek-V3",
        ("deepseek_v3", "deepseek_v2", "kimi_k2"),
        ("DeepSeek V3",),
        _DECODER_KEY,
        _decoder(
            "deepseek-v3",
            "jax maxtext",
            "float8 weights, which become bfloat16 and stay it on the way back",
            "float8 weights, which become bfloat16 and stay it on the way back",
            proofs={"jax": _tests("deepseek"), "maxtext": _tests("deepseek", "maxtext_models")},
        ),
    ),
    Model("GPT-2", ("gpt2",), ("GPT2", "GPT2 medium", "GPT2 large", "GPT2 XL"), r".*\.weight", (_flax(),)),
    Model(
        "BERT",
        ("bert",),
        ("BERT base uncased", "BERT base cased", "BERT large uncased"),
        r".*\.(weight|gamma)",
        (_flax(),),
    ),
    Model(
        "ViT",
        ("vit",),
        ("ViT base patch16 224", "ViT large patch16 224", "ViT huge patch14 224 in21k"),
        r".*\.weight",
        (_flax(),),
    ),
    Model(
        "CLIP",
        ("clip", "clip_text_model", "clip_vision_model"),
        (
            *("CLIP ViT base patch32", "CLIP ViT base patch16", "CLIP ViT large patch14"),
            "CLIP ViT large patch14 336",
        ),
        r".*\.weight",
        (_flax(),),
    ),
    Model(
        "Whisper",
        ("whisper",),
        (
            *("Whisper tiny", "Whisper base", "Whisper small", "Whisper medium", "Whisper large v2"),
            *("Whisper large v3", "Whisper large v3 turbo"),
        ),
        r".*\.weight",
        (_flax(),),
    ),
    Model(
        "T5",
        ("t5",),
        (
            *("T5 small", "T5 base", "T5 large", "T5 3B", "T5 11B", "T5 1.1 small", "T5 1.1 base"),
            *("T5 1.1 large", "T5 1.1 XL", "T5 1.1 XXL"),
        ),
        r"shared\.weight",
        (
            Layout(
                "t5x",
                Run("@hf-t5-to-t5x"),
                Run("@t5x-hf-t5"),
                "target/token_embedder/embedding",
                proofs=("tests/recipes/test_t5.py",),
            ),
            _flax("shared/embedding"),
        ),
    ),
    *(
        Model(title, (kind,), (), r".*\.weight", (_flax(),))
        for title, kind in {
            "ALBERT": "albert",
            "BART": "bart",
            "BEiT": "beit",
            "BigBird": "big_bird",
            "Blenderbot": "blenderbot",
            "Blenderbot small": "blenderbot-small",
            "BLOOM": "bloom",
            "DINOv2": "dinov2",
            "DistilBERT": "distilbert",
            "ELECTRA": "electra",
            "GPT-J": "gptj",
            "GPT-Neo": "gpt_neo",
            "LongT5": "longt5",
            "Marian": "marian",
            "mBART": "mbart",
            "mT5": "mt5",
            "OPT": "opt",
            "Pegasus": "pegasus",
            "RegNet": "regnet",
            "ResNet": "resnet",
            "RoBERTa": "roberta",
            "RoBERTa-PreLayerNorm": "roberta-prelayernorm",
            "RoFormer": "roformer",
            "Wav2Vec2": "wav2vec2",
            "XGLM": "xglm",
            "XLM-RoBERTa": "xlm-roberta",
        }.items()
    ),
)
"""All of them."""


def layouts() -> tuple[str, ...]:
    """What `--to` can be: the names of all layouts, that of Hugging Face last."""
    return (*dict.fromkeys(one.name for model in MODELS for one in model.layouts), HF)


def model_of(model_type: str) -> Model | None:
    """The model whose config.json has this `model_type`; None for an unknown one."""
    return next((model for model in MODELS if model_type in model.model_types), None)
