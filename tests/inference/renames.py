"""Random models in two conventions: the same leaves, called, grouped, stacked, fused and turned otherwise.

Both sides choose their words, their order of axes and their nesting independently, so that names have to be
read as a person reads them. Whatever a seed gives, the truth is known for every leaf.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

Shape = tuple[int, ...]

WORDS: Mapping[str, Sequence[str]] = {
    "layers": ("layers", "blocks", "h", "layer", "block", "encoder/layers", "trunk/blocks", "tower/layer"),
    "attn": ("attn", "self_attn", "attention", "self_attention", "mha", "SelfAttention_0"),
    "q": ("q", "q_proj", "query", "wq", "to_q", "query_proj"),
    "k": ("k", "k_proj", "key", "wk", "to_k", "key_proj"),
    "v": ("v", "v_proj", "value", "wv", "to_v", "value_proj"),
    "o": ("o", "o_proj", "out", "wo", "out_proj", "output"),
    "mlp": ("mlp", "ffn", "feed_forward", "ff", "MlpBlock_0"),
    "up": ("up", "fc1", "up_proj", "wi", "linear1", "Dense_0", "dense_in", "c_fc"),
    "down": ("down", "fc2", "down_proj", "wo", "linear2", "Dense_1", "dense_out", "c_proj"),
    "norm1": ("ln_1", "norm1", "input_norm", "LayerNorm_0", "attn_norm", "pre_attention_norm"),
    "norm2": ("ln_2", "norm2", "post_attention_norm", "LayerNorm_1", "ffn_norm", "pre_mlp_norm"),
    "final": ("norm", "final_norm", "ln_f", "norm_f", "encoder_norm"),
    "embed": ("embed", "token_embedder", "wte", "embed_tokens", "tok_embeddings", "word_embeddings"),
    "pos": ("pos_embed", "wpe", "position_embedding", "pos_embedding"),
    "head": ("head", "lm_head", "classifier", "output_head", "logits"),
    "conv": ("conv", "Conv", "conv_layer", "cnn"),
    "bn": ("bn", "BatchNorm", "batch_norm"),
    "fc": ("fc", "Dense", "linear", "dense"),
    "hidden": ("hidden", "torso", "trunk", "body", "net", "layers"),
    "actor": ("actor", "policy", "pi", "policy_head"),
    "critic": ("critic", "value_fn", "vf", "value_head"),
    "gen": ("generator", "gen", "G"),
    "disc": ("discriminator", "disc", "D"),
    "enc": ("encoder", "enc"),
    "dec": ("decoder", "dec"),
}
"""Words for the parts of models."""
TWINS = {"gen": "net", "disc": "net", "enc": "net", "dec": "net"}
"""Networks that have the same parts."""
ALIKE = {"q": "qkvo", "k": "qkvo", "v": "qkvo"}


@dataclass
class Leaf:
    """One leaf of a model: its place as roles and numbers, and what kind of array it is."""

    path: tuple[str | int, ...]
    kind: str
    """`matrix` (out, in), `bias`, `scale`, `conv` (out, in, h, w), `table`, `mean`, `var`."""
    array: np.ndarray


@dataclass
class Convention:
    """Names and layouts of the leaves on one side."""

    random: np.random.Generator
    torch: bool
    chosen: dict[str, str] = field(default_factory=dict)
    root: str = ""
    stacked: bool = False
    attached: bool = False

    @staticmethod
    def of(random: np.random.Generator, torch: bool) -> "Convention":
        roots = ("", "model.", "module.") if torch else ("", "params/", "params/", "target/")
        return Convention(
            random,
            torch,
            root=str(random.choice(roots)),
            stacked=not torch and bool(random.random() < 0.3),
            attached=not torch and bool(random.random() < 0.5),
        )

    def word(self, role: str) -> str:
        if role not in self.chosen:
            names = [w for w in WORDS[role] if self.torch == (w[0].islower() or w in "GD") or w[0].islower()]
            at = int(self.random.integers(len(names)))
            self.chosen[role] = names[at]
            for other in ALIKE.get(role, ""):  # one style for all projections
                self.chosen.setdefault(other, WORDS[other][WORDS[role].index(names[at])])
        return self.chosen[role]

    def key(self, leaf: Leaf, stacked: bool) -> str:
        parts: list[str] = []
        for role in leaf.path:
            if isinstance(role, int):
                if stacked and not any(isinstance(one, int) for one in parts):
                    continue
                if self.attached or parts[-1] in ("conv", "Conv", "bn", "BatchNorm", "fc", "Dense", "linear"):
                    joint = "" if self.torch else "_"
                    parts[-1] += f"{joint}{role + (1 if self.torch else 0)}" if joint == "" else f"_{role}"
                else:
                    parts.append(str(role))
            else:
                parts += self.word(role).split("/")
        last = self.last(leaf.kind)
        text = "/".join([*parts, last] if last else parts)
        return self.root + (text.replace("/", ".") if self.torch else text)

    def last(self, kind: str) -> str:
        if self.torch:
            names = {"mean": "running_mean", "var": "running_var", "bias": "bias"}
            return names.get(kind, "weight")
        names = {"matrix": "kernel", "conv": "kernel", "table": "embedding", "scale": "scale"}
        return names.get(kind, kind)

    def laid(self, leaf: Leaf) -> np.ndarray:
        if self.torch:
            return leaf.array
        if leaf.kind == "matrix":
            return leaf.array.T
        return leaf.array.transpose(2, 3, 1, 0) if leaf.kind == "conv" else leaf.array


Model = Callable[[np.random.Generator], Iterator[Leaf]]


def _pick(random: np.random.Generator, *choices: int) -> int:
    return int(random.choice(choices))


def _array(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def _linear(
    random: np.random.Generator, path: tuple[str | int, ...], a: int, b: int, bias: bool = True
) -> Iterator[Leaf]:
    yield Leaf(path, "matrix", _array(random, b, a))
    if bias:
        yield Leaf(path, "bias", _array(random, b))


def _norm(random: np.random.Generator, path: tuple[str | int, ...], width: int, bias: bool) -> Iterator[Leaf]:
    yield Leaf(path, "scale", _array(random, width))
    if bias:
        yield Leaf(path, "bias", _array(random, width))


def transformer(random: np.random.Generator) -> Iterator[Leaf]:
    """A language model: layers with attention and an MLP."""
    width, layers, bias = _pick(random, 12, 16, 24), _pick(random, 2, 3, 5), bool(random.random() < 0.5)
    yield Leaf(("embed",), "table", _array(random, 50, width))
    if random.random() < 0.5:
        yield Leaf(("pos",), "table", _array(random, 20, width))
    for n in range(layers):
        for role in "qkvo":
            yield from _linear(random, ("layers", n, "attn", role), width, width, bias)
        yield from _linear(random, ("layers", n, "mlp", "up"), width, 4 * width, bias)
        yield from _linear(random, ("layers", n, "mlp", "down"), 4 * width, width, bias)
        for role in ("norm1", "norm2"):
            yield from _norm(random, ("layers", n, role), width, bias)
    yield from _norm(random, ("final",), width, bias)
    yield from _linear(random, ("head",), width, 50, bias=False)


def cnn(random: np.random.Generator) -> Iterator[Leaf]:
    """Convolutions with norms, and dense layers behind them."""
    widths = [3, *(_pick(random, 8, 16, 16, 32) for _ in range(_pick(random, 2, 3, 4)))]
    for n in range(len(widths) - 1):
        yield Leaf(("conv", n), "conv", _array(random, widths[n + 1], widths[n], 3, 3))
        yield Leaf(("conv", n), "bias", _array(random, widths[n + 1]))
        yield from _norm(random, ("bn", n), widths[n + 1], bias=True)
    yield from _linear(random, ("fc", 0), 128, 40)
    yield from _linear(random, ("fc", 1), 40, 10)


def mlp(random: np.random.Generator) -> Iterator[Leaf]:
    """Numbered dense layers."""
    widths = [_pick(random, 5, 7), *(_pick(random, 16, 32, 32) for _ in range(_pick(random, 2, 3, 4))), 3]
    for n in range(len(widths) - 1):
        yield from _linear(random, ("hidden", "fc", n), widths[n], widths[n + 1])


def agent(random: np.random.Generator) -> Iterator[Leaf]:
    """An actor and a critic behind one torso."""
    width = _pick(random, 16, 32)
    for n in range(2):
        yield from _linear(random, ("hidden", "fc", n), 6 if n == 0 else width, width)
    yield from _linear(random, ("actor",), width, 4)
    yield from _linear(random, ("critic",), width, 1)


def gan(random: np.random.Generator) -> Iterator[Leaf]:
    """Two networks that differ in their name."""
    for role in ("gen", "disc"):
        for n in range(3):
            yield from _linear(random, (role, "fc", n), 16 + n, 24)


def autoencoder(random: np.random.Generator) -> Iterator[Leaf]:
    """An encoder and a decoder of a few layers."""
    widths = [20, 16, 8]
    for n in range(2):
        yield from _linear(random, ("enc", "fc", n), widths[n], widths[n + 1])
    for n in range(2):
        yield from _linear(random, ("dec", "fc", n), widths[::-1][n], widths[::-1][n + 1])


MODELS: Sequence[Model] = (transformer, cnn, mlp, agent, gan, autoencoder)


@dataclass(frozen=True)
class Renamed:
    """A source, the target that it becomes, and the sources of each target leaf."""

    name: str
    source: Mapping[str, np.ndarray]
    target: Mapping[str, np.ndarray]
    sources: Mapping[str, tuple[str, ...]]
    rules: int = 0
    """Number of rules that a person writes for it."""


def written_rules(here: Convention, there: Convention, leaves: Sequence[Leaf]) -> int:
    """Number of rules that a person writes: one for all leaves below one parent with the same layout change.

    Modules that are called otherwise are words of one pattern, unless their numbers stand elsewhere; so are
    two networks, and the trees of an optimizer. Leaves that keep their last word and their layout need no
    rule of their own within their module.
    """
    rules = set()
    for leaf in leaves:
        words = [TWINS.get(role, role) for role in leaf.path if isinstance(role, str)]
        ends = here.last(leaf.kind), there.last(leaf.kind)
        turned = leaf.kind in ("matrix", "conv") and here.torch != there.torch
        stacked = "layers" in leaf.path and (here.stacked, there.stacked)
        depths = [len(re.split("[./]", side.key(leaf, False))) for side in (here, there)]
        alike = ends[0] == ends[1] and not turned
        rules.add((*words[:-1], stacked, *depths, "any" if alike else (*ends, turned and leaf.kind)))
    return len(rules)


def renamed(seed: int) -> Renamed:
    """The model of a seed in two conventions, perhaps with the slots of an optimizer."""
    random = np.random.default_rng([35, seed])
    model = MODELS[seed % len(MODELS)]
    torch = (bool(random.random() < 0.6), bool(random.random() < 0.2))
    here, there = (Convention.of(random, one) for one in torch)
    leaves = list(model(random))
    source: dict[str, np.ndarray] = {}
    stacks: dict[str, list[tuple[str, np.ndarray]]] = {}
    slots = [("", "")]
    if random.random() < 0.3 and not here.torch and not there.torch:
        here.root = there.root = ""
        slots = [
            ("params/", "params/"),
            ("opt_state/0/mu/", "opt_state/0/mu/"),
            ("opt_state/0/nu/", "opt_state/0/nu/"),
        ]
    for before, behind in slots:
        for leaf in leaves:
            one = leaf if not before else Leaf(leaf.path, leaf.kind, _array(random, *leaf.array.shape))
            key = before + here.key(one, here.stacked and "layers" in one.path)
            new_key = behind + there.key(one, there.stacked and "layers" in one.path)
            if here.stacked and "layers" in one.path:
                key += f"@{one.path[1]}"
            source[key] = np.ascontiguousarray(here.laid(one))
            stacks.setdefault(new_key, []).append((key, np.ascontiguousarray(there.laid(one))))
    joined = _joined(model.__name__, source, stacks, there.stacked)
    return replace(joined, rules=written_rules(here, there, leaves))


def _joined(
    name: str,
    source: dict[str, np.ndarray],
    stacks: Mapping[str, list[tuple[str, np.ndarray]]],
    stacked: bool,
) -> Renamed:
    groups: dict[str, list[str]] = {}
    for key in source:
        groups.setdefault(key.split("@")[0], []).append(key)
    joined = {
        k: source[ks[0]] if "@" not in ks[0] else np.stack([source[one] for one in ks])
        for k, ks in groups.items()
    }
    target, sources = {}, {}
    for new_key, each in stacks.items():
        target[new_key] = each[0][1] if len(each) == 1 else np.stack([array for _, array in each])
        sources[new_key] = tuple(dict.fromkeys(key.split("@")[0] for key, _ in each))
    return Renamed(name, joined, target, sources)
