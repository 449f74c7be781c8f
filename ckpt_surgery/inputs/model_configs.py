"""Find entries of a model's `config.json` that the weights of a result contradict, and their true values."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.history import CONFIG, history_entry
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.merging.recipes import DTYPES, INNER, LAYERS, PER_LAYER
from ckpt_surgery.planner.plan import Plan

_EMBEDDING = re.compile(r"(?:.+\.)?(?:embed_tokens|wte|word_embeddings|shared)\.weight")
_LAYER = re.compile(r"(?P<stack>(?:.+\.)?(?:layers|h))\.(?P<index>\d+)\..+")
_UP = re.compile(r"(?:.+\.)?layers\.\d+\.mlp\.(?:gate|up)_proj\.weight")
_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
_OTHER_TOWERS = re.compile(r"vision|visual|audio|encoder|image|projector|speech")
_LAYERS = ("decoder_layers", *LAYERS)
"""In configs with the first, as BART's, `num_hidden_layers` counts the layers of the encoder."""
_WIDTHS = ("hidden_size", "n_embd", "d_model")
_NARROW_EMBEDDING = ("embedding_size", "word_embed_proj_dim", "hidden_size_per_layer_input")
"""Entries of models whose embedding need not be as wide as their layers."""
_FLOATS = ("float64", "float32", "bfloat16", "float16")
_QUANTIZED = ("_scales", "_blocks", "_scale_inv", "_scale", ".scales", ".qweight", ".qzeros", ".absmax")
"""Suffixes of the keys of quantized weights and their scales."""
REMOVED = "(removed)"
Place = tuple[str, ...]
"""Path of an entry."""


@dataclass(frozen=True)
class Contradiction:
    """An entry that the weights contradict."""

    place: Place
    given: Any
    proved: Any
    """Value that the weights prove, REMOVED for none; None where they only prove that the entry is wrong."""
    why: str
    """The weights' own value in words, with the key that proves it."""

    @property
    def sentence(self) -> str:
        """The contradiction as a warning."""
        name = "/".join(self.place)
        if self.proved == REMOVED:
            return f"`{name}` in config.json does not hold any more: {self.why}; it is left out"
        end = "correct it before the model is loaded" if self.proved is None else f"{self.proved} is written"
        return f"`{name}` in config.json is {self.given}, but {self.why}: {end}"


def contradictions(leaves: Sequence[Leaf], config: Mapping[str, Any]) -> list[Contradiction]:
    """Find the entries of a config that contradict weights named as Hugging Face names them.

    The weights prove numbers of rows, widths, the number of layers, and the dtype; unknown names, nothing.
    """
    specs = {leaf.key.text: leaf.spec for leaf in leaves if leaf.kind is LeafKind.ARRAY and leaf.spec}
    holders: list[tuple[Place, Mapping[str, Any]]] = [((), config)]
    if isinstance(config.get(INNER), Mapping):
        holders.append(((INNER,), config[INNER]))
    return [
        Contradiction((*path, name), given, proved, why)
        for check in (_of_embedding, _of_layers, _of_width, _of_dtype, _of_quantization, _of_head)
        for path, holder in holders
        for name, given, proved, why in check(holder, specs)
    ]


Holder = Mapping[str, Any]
"""The config, or the part of it about the text model."""
Specs = Mapping[str, ArraySpec]
"""Shape and dtype of each array by its key."""
Found = Iterator[tuple[str, Any, Any, str]]
"""Fields of contradictions: the name of the entry, its value, the proved one, and why."""


def _compared(holder: Holder, names: Iterable[str], proved: int, why: str) -> Found:
    for name in names:
        if type(holder.get(name)) is int and holder[name] != proved:
            yield name, holder[name], proved, why


def _of_embedding(holder: Holder, specs: Specs) -> Found:
    tables = {key: spec.shape for key, spec in specs.items() if _EMBEDDING.fullmatch(key)}
    shapes = set(tables.values())
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2:
        return
    key = min(tables)
    yield from _compared(holder, ["vocab_size"], shape[0], f"`{key}` has {shape[0]} rows")
    if not any(name in holder for name in _NARROW_EMBEDDING):
        yield from _compared(holder, _WIDTHS, shape[1], f"`{key}` has {shape[1]} columns")


def _of_layers(holder: Holder, specs: Specs) -> Found:
    stacks: dict[str, set[int]] = defaultdict(set)
    for match in filter(None, map(_LAYER.fullmatch, specs)):
        if not _OTHER_TOWERS.search(match["stack"]):
            stacks[match["stack"]].add(int(match["index"]))
    name = next((name for name in _LAYERS if type(holder.get(name)) is int), None)
    if name is None or len(stacks) != 1 or holder.get("is_encoder_decoder"):
        return
    ((stack, indices),) = stacks.items()
    given, count, more = holder[name], len(indices), holder.get("num_nextn_predict_layers")
    why = f"`{stack}` has {count} layers"
    if count in (given, given + more if type(more) is int else given):
        return
    if indices != set(range(count)):
        yield name, given, None, f"{why}, and none is {min(set(range(count)) - indices)}"
        return
    yield name, given, count, why
    for entry in PER_LAYER:
        values = holder.get(entry)
        if isinstance(values, list) and len(values) == given:
            uniform = [values[0]] * count if values and all(value == values[0] for value in values) else None
            yield entry, values, uniform, why


def _of_width(holder: Holder, specs: Specs) -> Found:
    widths = {spec.shape[0]: key for key, spec in specs.items() if _UP.fullmatch(key)}
    for width, key in widths.items() if len(widths) == 1 else ():
        yield from _compared(holder, ["intermediate_size"], width, f"`{key}` has {width} rows")


def _of_dtype(holder: Holder, specs: Specs) -> Found:
    dtypes = {spec.dtype.name for spec in specs.values()}
    for dtype in dtypes.intersection(_FLOATS) if len(dtypes) == 1 else ():
        for name in DTYPES:
            if holder.get(name) in _FLOATS and holder[name] != dtype:
                yield name, holder[name], dtype, f"all arrays are {dtype}"


def _of_quantization(holder: Holder, specs: Specs) -> Found:
    plain = all(s.dtype.name in _FLOATS and not key.endswith(_QUANTIZED) for key, s in specs.items())
    if specs and plain and isinstance(holder.get("quantization_config"), Mapping):
        yield "quantization_config", "there", REMOVED, "no weight is quantized"


def _of_head(holder: Holder, specs: Specs) -> Found:
    head = next((name for name in _HEADS if name in specs), None)
    tied, name = holder.get("tie_word_embeddings"), "tie_word_embeddings"
    if tied is True and head is not None:
        yield name, True, None, f"there is `{head}`, which is not used where embeddings are tied"
    causal = any(str(name).endswith("ForCausalLM") for name in holder.get("architectures") or ())
    if tied is False and head is None and causal:
        yield name, False, None, "`lm_head.weight` is missing"


def config_warnings(plan: Plan) -> list[str]:
    """Warn about entries of the recorded config that the weights of the result contradict."""
    leaves, noted = [step.leaf for step in plan.steps], history_entry(plan.metadata).get(CONFIG)
    return [contradiction.sentence for contradiction in contradictions(leaves, noted)] if noted else []
