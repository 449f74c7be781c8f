"""Findings for tests of drafts: parts of models as formations, and any mixture of them."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from ckpt_surgery.inference.expressions.formations import Evidence, Findings, Formation, Undecided, Value

Made = tuple[str, str | Sequence[str], str] | tuple[str, str | Sequence[str], str, Sequence[int]]
"""Target, sources, value, and the numbers in its holes."""


def found(
    made: Iterable[Made],
    dropped: Iterable[str] = (),
    from_target: Iterable[str] = (),
    undecided: Sequence[Undecided] = (),
    others: Iterable[str] = (),
    evidence: Evidence = Evidence.VALUES,
) -> Findings:
    """Findings of one kind of evidence. `others`: further keys of the source."""
    formations = [formation(*one, evidence=evidence) for one in made]
    sources = [source for one in formations for source in one.sources]
    return Findings(
        tuple(dict.fromkeys([*sources, *dropped, *others])),
        (*(one.target for one in formations), *from_target),
        tuple(formations),
        tuple(dropped),
        tuple(from_target),
        tuple(undecided),
    )


def formation(
    target: str,
    sources: str | Sequence[str],
    value: str = "x",
    numbers: Sequence[int] = (),
    evidence: Evidence = Evidence.VALUES,
    why: str = "",
) -> Formation:
    several = (sources,) if isinstance(sources, str) else tuple(sources)
    return Formation(target, several, Value(value, tuple(numbers)), evidence, why)


def llama(layers: int) -> Findings:
    """A decoder with a leaf for each layer, and the one with stacked layers that it becomes."""
    made: list[Made] = [
        ("params/embedder/embedding", "model.embed_tokens.weight", "x"),
        ("params/logits/kernel", "lm_head.weight", "x.T"),
        ("params/norm/scale", "model.norm.weight", "x"),
    ]
    heads = "rearrange(stack(xs), 'l (h d) a -> a l h d', h={0})"
    for old, new, value, *numbers in (
        *((f"self_attn.{one}_proj", f"attention/{one}", heads, 2) for one in "qkv"),
        ("self_attn.o_proj", "attention/o", "rearrange(stack(xs), 'l a (h d) -> h l d a', h={0})", 2),
        ("mlp.gate_proj", "mlp/wi_0", "rearrange(stack(xs), 'l a b -> b l a')"),
        ("mlp.up_proj", "mlp/wi_1", "rearrange(stack(xs), 'l a b -> b l a')"),
        ("mlp.down_proj", "mlp/wo", "rearrange(stack(xs), 'l a b -> b l a')"),
        ("input_layernorm", "norm_1", "stack(xs, axis=1)"),
        ("post_attention_layernorm", "norm_2", "stack(xs, axis=1)"),
    ):
        sources = [f"model.layers.{layer}.{old}.weight" for layer in range(layers)]
        made.append((f"params/layers/{new}/kernel", sources, value, numbers))
    dropped = [f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in range(layers)]
    return found(made, dropped)


# --- any mixture ------------------------------------------------------------------------------------------


@dataclass
class Mixture:
    """Parts of a model that are put together; each has a name of its own."""

    trees: Sequence[str]
    layers: int
    random: random.Random
    formations: list[Formation] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    from_target: list[str] = field(default_factory=list)

    def make(self, target: str, sources: Sequence[str], value: str = "x", *numbers: int) -> None:
        evidence = Evidence.VALUES if len(self.formations) % 3 else Evidence.ONLY_LAYOUT
        for tree in self.trees:
            several = [tree + source for source in sources]
            self.formations.append(formation(tree + target, several, value, numbers, evidence))

    def drop(self, key: str) -> None:
        self.dropped += [tree + key for tree in self.trees]

    def findings(self) -> Findings:
        sources = [source for one in self.formations for source in one.sources]
        keys = list(dict.fromkeys([*sources, *self.dropped]))
        self.random.shuffle(keys)
        targets = tuple(one.target for one in self.formations)
        return Findings(
            tuple(keys),
            (*targets, *self.from_target),
            tuple(self.formations),
            tuple(self.dropped),
            tuple(self.from_target),
        )


def _renamed(to: Mixture, name: str) -> None:
    to.make(f"new/{name}/kernel", [f"{name}.weight"], "x.T")
    to.make(f"new/{name}/bias", [f"{name}.bias"])


def _moved(to: Mixture, name: str) -> None:
    for layer, leaf in itertools.product(range(to.layers), "ab"):
        to.make(f"new/block_{layer + 1:02d}/{name}/{leaf}/w", [f"layer_{layer}/{name}/{leaf}/w"])


def _words(to: Mixture, name: str) -> None:
    for (old, new), layer in itertools.product((("q", "query"), ("k", "key")), range(to.layers)):
        to.make(f"block/{layer}/{name}/{new}", [f"layers.{layer}.{name}.{old}"], "x.T")


def _kept(to: Mixture, name: str) -> None:
    for layer in range(to.layers):
        to.make(f"{name}/{layer}/w", [f"{name}/{layer}/w"])


def _stacked(to: Mixture, name: str) -> None:
    for word in ("up", "down"):
        to.make(f"{name}/{word}", [f"h.{layer}.{name}.{word}" for layer in range(to.layers)], "stack(xs)")


def _experts(to: Mixture, name: str) -> None:
    keys = [f"h.{layer}.{name}.{expert}.w" for layer in range(to.layers) for expert in range(3)]
    to.make(f"{name}/wi", keys, "rearrange(stack(xs), '(l e) a b -> l e b a', e={0})", 3)


def _unstacked(to: Mixture, name: str) -> None:
    for layer in range(4):
        to.make(f"block_{layer:03d}/{name}", [f"{name}/stacked"], "x[{0}].T", layer)


def _unstacked_twice(to: Mixture, name: str) -> None:
    for layer, expert in itertools.product(range(2), range(3)):
        to.make(f"block/{layer}/{name}/e{expert}", [f"{name}.both"], "x[{0}, {1}:]", layer, expert)


def _split(to: Mixture, name: str) -> None:
    for layer, (place, word) in itertools.product(range(to.layers), enumerate("qk")):
        numbers = (3 * place, 3 * place + 3)
        to.make(f"block/{layer}/{name}/{word}", [f"layers/{layer}/{name}/qk"], "x[:, {0}:{1}]", *numbers)


def _odd_order(to: Mixture, name: str) -> None:
    keys = [f"h.{layer}.{name}.o" for layer in range(to.layers)]
    to.random.shuffle(keys)
    to.make(f"{name}/odd", keys, "stack(xs)")


def _every_second(to: Mixture, name: str) -> None:
    for start, word in enumerate(("even", "odd")):
        keys = [f"h.{layer}.{name}.s" for layer in range(start, to.layers, 2)]
        to.make(f"{name}/{word}", keys, "stack(xs)")


def _subset(to: Mixture, name: str) -> None:
    last = to.random.randrange(to.layers)
    for layer in range(to.layers):
        if layer <= last:
            to.make(f"block/{layer}/{name}/sub", [f"h.{layer}.{name}.sub"])
        else:
            to.drop(f"h.{layer}.{name}.sub")


def _permuted(to: Mixture, name: str) -> None:
    places = to.random.sample(range(to.layers), to.layers)
    for layer, place in enumerate(places):
        to.make(f"block/{place}/{name}/p", [f"h.{layer}.{name}.p"], "x.T")


def _joined(to: Mixture, name: str) -> None:
    for layer in range(to.layers):
        to.make(f"block/{layer}/{name}/qk", [f"h.{layer}.{name}.{w}" for w in "qk"], "concat(xs, axis=0)")


def _added_up(to: Mixture, name: str) -> None:
    for layer in range(to.layers):
        to.make(f"block/{layer}/{name}/m", [f"h.{layer}.{name}.{w}" for w in ("w", "lora")], "xs[0] - xs[1]")


def _overlapping(to: Mixture, name: str) -> None:
    to.make(f"{name}/one", [f"{name}/in/{word}" for word in "abc"], "concat(xs)")
    to.make(f"{name}/two", [f"{name}/in/{word}" for word in "bcd"], "concat(xs)")
    to.make(f"{name}/three", [f"{name}/in/d", f"{name}/in/d"], "concat(xs)")
    to.make(f"{name}/four", [f"{name}/in/d"], "x * 2.0")


def _counted_from_one(to: Mixture, name: str) -> None:
    for stage, unit in ((1, 0), (1, 1), (2, 0), (4, 0)):
        to.make(f"{name}/block_{2 * stage + unit}/w", [f"stage{stage}.{unit}.{name}.conv1"], "x.T")
        to.make(f"{name}/block_{2 * stage + unit}/v", [f"stage{stage}.{unit}.{name}.conv2"], "x.T")
    for old, new in (("w1", "wi_0"), ("w2", "wo"), ("w3", "wi_1")):
        to.make(f"{name}/{new}", [f"{name}/{old}"], "x.T")
    to.make(f"{name}/head_1", [f"{name}/head1"])
    to.drop(f"{name}/head2")


def _stages(to: Mixture, name: str) -> None:
    for stage in range(to.layers):
        for unit in range(1 + stage % 3):
            to.make(f"{name}/s{stage}/u{unit}", [f"h.{stage}.{name}.units"], "x[{0}]", unit)


def _many_odd_names(to: Mixture, name: str) -> None:
    keys = [f"{name}/in/{to.random.getrandbits(60):x}/w" for _ in range(120)]
    to.make(f"{name}/wide", keys, "concat(xs)")
    to.drop(f"{name}/in/not this one/w")


def _odd_characters(to: Mixture, name: str) -> None:
    to.make(f"{name}$/a[0]b/c[d]e/new", [f"{name}.${{n}}.(b)"], "x.T")
    to.make(f"{name}'/it's\\", [f"{name}'s", f"{name}{{n}}"], "xs[1] - xs[0]")
    for layer in range(to.layers):
        keys = [f"{name}/{layer}/a'b", f"{name}/{layer}/c\\'{{\x07}}"]
        to.make(f"{name}/{layer}/odd", keys, "xs[1] - xs[0]")


def _kept_and_copied(to: Mixture, name: str) -> None:
    for layer in range(to.layers):
        to.make(f"{name}/{layer}/w", [f"{name}/{layer}/w"])
        to.make(f"{name}/copy/{layer}", [f"{name}/{layer}/w"], "x.T")


def _dropped(to: Mixture, name: str) -> None:
    for leaf in (f"{name}/a", f"{name}/b", *(f"h.{layer}.{name}.inv" for layer in range(to.layers))):
        to.drop(leaf)


def _from_target(to: Mixture, name: str) -> None:
    to.from_target += [f"{name}/adapter/a", f"{name}/adapter/b", f"{name}/head"]


BLOCKS: Sequence[Callable[[Mixture, str], None]] = (
    *(_renamed, _moved, _words, _kept, _stacked, _experts, _unstacked, _unstacked_twice, _split),
    *(
        _odd_order,
        _every_second,
        _subset,
        _permuted,
        _joined,
        _added_up,
        _overlapping,
        _stages,
        _counted_from_one,
    ),
    *(_many_odd_names, _odd_characters, _kept_and_copied, _dropped, _from_target),
)
OPTIMIZER = ("params/", "opt_state/0/mu/", "opt_state/0/nu/")


@st.composite
def mixtures(draw: st.DrawFn) -> Findings:
    """Findings of a few parts, in one tree or in the parameters and their optimizer slots."""
    trees = draw(st.sampled_from([("",), OPTIMIZER]))
    mixture = Mixture(trees, draw(st.integers(2, 12)), random.Random(draw(st.integers(0, 2**20))))
    _renamed(mixture, "first")
    for number, block in enumerate(draw(st.lists(st.sampled_from(BLOCKS), max_size=6))):
        block(mixture, draw(st.sampled_from(["attn", "mlp", "a+b", "q_proj"])) + "abcdef"[number])
    return mixture.findings()
