"""Find entries of a model's `config.json` that the weights of a result contradict, and their true values."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.history import CONFIG, history_entry
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.merging.configs import DTYPES, INNER, LAYERS, PER_LAYER
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

    The weights prove numbers of rows, widths, the number of layers, and the dtype. Weights with unknown names
    prove nothing.
    """
    arrays = {leaf.key.text: leaf for leaf in leaves if leaf.kind is LeafKind.ARRAY and leaf.spec is not None}
    wrong: list[Contradiction] = []
    for path, holder in _holders(config):
        wrong += _of_embedding(path, holder, arrays)
        wrong += _of_layers(path, holder, arrays)
        wrong += _of_width(path, holder, arrays)
    return [*wrong, *_of_dtype(config, arrays), *_of_quantization(config, arrays), *_of_head(config, arrays)]


def _holders(config: Mapping[str, Any]) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    yield (), config
    if isinstance(config.get(INNER), Mapping):
        yield (INNER,), config[INNER]


def _compared(
    path: Place, holder: Mapping[str, Any], names: Collection[str], proved: int, why: str
) -> Iterator[Contradiction]:
    for name in names:
        given = holder.get(name)
        if type(given) is int and given != proved:
            yield Contradiction((*path, name), given, proved, why)


def _of_embedding(
    path: Place, holder: Mapping[str, Any], arrays: Mapping[str, Leaf]
) -> Iterator[Contradiction]:
    tables = {key: leaf.spec.shape for key, leaf in arrays.items() if leaf.spec and _EMBEDDING.fullmatch(key)}
    shapes = set(tables.values())
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2:
        return
    key = min(tables)
    yield from _compared(path, holder, ["vocab_size"], shape[0], f"`{key}` has {shape[0]} rows")
    if not any(name in holder for name in _NARROW_EMBEDDING):
        yield from _compared(path, holder, _WIDTHS, shape[1], f"`{key}` has {shape[1]} columns")


def _of_layers(path: Place, holder: Mapping[str, Any], arrays: Mapping[str, Leaf]) -> Iterator[Contradiction]:
    stacks: dict[str, set[int]] = defaultdict(set)
    for key in arrays:
        match = _LAYER.fullmatch(key)
        if match is not None and not _OTHER_TOWERS.search(match["stack"]):
            stacks[match["stack"]].add(int(match["index"]))
    name = next((name for name in _LAYERS if type(holder.get(name)) is int), None)
    if name is None or len(stacks) != 1 or holder.get("is_encoder_decoder"):
        return
    ((stack, indices),) = stacks.items()
    given, count = holder[name], len(indices)
    more = holder.get("num_nextn_predict_layers")
    if count in (given, given + more if type(more) is int else given):
        return
    if indices != set(range(count)):
        gap = min(set(range(count)) - indices)
        yield Contradiction((*path, name), given, None, f"`{stack}` has {count} layers, and none is {gap}")
        return
    yield Contradiction((*path, name), given, count, f"`{stack}` has {count} layers")
    for entry in PER_LAYER:
        values = holder.get(entry)
        if isinstance(values, list) and len(values) == given:
            uniform = [values[0]] * count if values and all(value == values[0] for value in values) else None
            yield Contradiction((*path, entry), values, uniform, f"`{stack}` has {count} layers")


def _of_width(path: Place, holder: Mapping[str, Any], arrays: Mapping[str, Leaf]) -> Iterator[Contradiction]:
    widths = {leaf.spec.shape[0]: key for key, leaf in arrays.items() if leaf.spec and _UP.fullmatch(key)}
    if len(widths) == 1:
        ((width, key),) = widths.items()
        yield from _compared(path, holder, ["intermediate_size"], width, f"`{key}` has {width} rows")


def _of_dtype(config: Mapping[str, Any], arrays: Mapping[str, Leaf]) -> Iterator[Contradiction]:
    dtypes = {leaf.spec.dtype.name for leaf in arrays.values() if leaf.spec}
    if len(dtypes) != 1:
        return
    dtype = dtypes.pop()
    for path, holder in _holders(config):
        for name in DTYPES:
            given = holder.get(name)
            if given in _FLOATS and dtype in _FLOATS and given != dtype:
                yield Contradiction((*path, name), given, dtype, f"all arrays are {dtype}")


def _of_quantization(config: Mapping[str, Any], arrays: Mapping[str, Leaf]) -> Iterator[Contradiction]:
    plain = all(leaf.spec and leaf.spec.dtype.name in _FLOATS for leaf in arrays.values())
    if arrays and plain and not any(key.endswith(_QUANTIZED) for key in arrays):
        for path, holder in _holders(config):
            if isinstance(holder.get("quantization_config"), Mapping):
                place = (*path, "quantization_config")
                yield Contradiction(place, "there", REMOVED, "no weight is quantized")


def _of_head(config: Mapping[str, Any], arrays: Mapping[str, Leaf]) -> Iterator[Contradiction]:
    head = next((name for name in _HEADS if name in arrays), None)
    for path, holder in _holders(config):
        tied = holder.get("tie_word_embeddings")
        if tied is True and head is not None:
            why = f"there is `{head}`, which is not used where embeddings are tied"
            yield Contradiction((*path, "tie_word_embeddings"), True, None, why)
        causal = any(str(name).endswith("ForCausalLM") for name in holder.get("architectures") or ())
        if tied is False and head is None and causal:
            yield Contradiction((*path, "tie_word_embeddings"), False, None, "`lm_head.weight` is missing")


def config_warnings(plan: Plan) -> list[str]:
    """Warn about entries of the recorded config that the weights of the result contradict."""
    leaves, noted = [step.leaf for step in plan.steps], history_entry(plan.metadata).get(CONFIG)
    return [contradiction.sentence for contradiction in contradictions(leaves, noted)] if noted else []
