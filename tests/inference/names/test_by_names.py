"""Matching by names of published models: pairs, layouts, and leaves that stay open."""

import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.inference.expressions.formations import Evidence, Proposal
from ckpt_surgery.inference.names.by_names import match_by_names
from ckpt_surgery.inference.values.reading import Side
from tests.inference.model_names import MODELS, Row
from tests.support.leaves import array_leaf
from tests.support.slow import slow

ALL = pytest.mark.parametrize("rows", MODELS.values(), ids=MODELS)


def sides(rows: Sequence[Row]) -> tuple[list[Leaf], list[Leaf]]:
    """All leaves of the source, and of the target."""
    return [leaf for row in rows for leaf in row.source_leaves()], [
        leaf for row in rows for leaf in row.target_leaves()
    ]


def named(
    sources: Sequence[Leaf],
    targets: Sequence[Leaf],
    all_sources: Sequence[Leaf] = (),
    all_targets: Sequence[Leaf] = (),
) -> Proposal:
    """Match some leaves by names, among all of both checkpoints."""
    one, other = (
        Side({leaf.key.text: leaf for leaf in [*every, *some]})
        for every, some in ((all_sources, sources), (all_targets, targets))
    )
    keys = {leaf.key.text for leaf in sources}, {leaf.key.text for leaf in targets}
    return match_by_names(one, other, keys)


def truth(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    return {target: sources for row in rows for sources, target in row.pairs()}


def paired(said: Proposal) -> dict[str, tuple[str, ...]]:
    """The sources that names decide for a target, with or without a layout."""
    pairs = {one.target: one.sources for one in said.formations}
    for unclear in said.undecided:
        if unclear.why.startswith("names fit"):
            (sources,) = {candidate.sources for candidate in unclear.candidates}
            alone = len(sources) == len(unclear.targets)
            pairs |= {
                target: (sources[at],) if alone else sources for at, target in enumerate(unclear.targets)
            }
    return pairs


def values(said: Proposal) -> dict[str, str]:
    return {one.target: str(one.value) for one in said.formations}


@ALL
def test_every_leaf_of_a_model_is_found(rows: list[Row]) -> None:
    said = named(*sides(rows))
    assert said.undecided == ()
    assert {one.target: one.sources for one in said.formations} == truth(rows)
    first = {next(iter(row.pairs()))[1]: row.value for row in rows}
    assert {target: values(said)[target] for target in first} == first


@ALL
def test_and_the_other_way_round(rows: list[Row]) -> None:
    source, target = sides(rows)
    said = named(target, source)
    back = {key: (theirs,) for theirs, keys in truth(rows).items() for key in keys}
    assert {one.target: one.sources for one in said.formations} == back


@ALL
@pytest.mark.parametrize("equal", [slow(False), True], ids=["shapes", "equal shapes"])
def test_no_false_pair_among_halves(rows: list[Row], equal: bool) -> None:
    if equal:
        rows = [
            Row(row.source, (8, 8), row.target, (8, 8))
            for row in rows
            if ("{n" in row.target) == ("{n" in row.source)
        ]
    for seed in range(40):
        chosen = random.Random(seed)
        left, _ = sides([row for row in rows if chosen.random() < 0.5])
        _, right = sides([row for row in rows if chosen.random() < 0.5])
        pairs = truth(rows)
        assert {t: s for t, s in paired(named(left, right)).items() if pairs[t] != s} == {}


def test_a_square_matrix_goes_as_the_others() -> None:
    source = [array_leaf("a.up_proj.weight", (8, 5)), array_leaf("a.q_proj.weight", (5, 5))]
    target = [array_leaf("a/wi_1/kernel", (5, 8)), array_leaf("a/query/kernel", (5, 5))]
    said = named(source, target)
    assert [(str(one.value), one.evidence) for one in said.formations] == [
        ("x.T", Evidence.ONLY_LAYOUT),
        ("x.T", Evidence.ANALOGY),
    ]


def test_others_that_disagree_decide_nothing() -> None:
    source = [
        array_leaf(f"{name}_proj.weight", shape)
        for name, shape in (("up", (8, 5)), ("down", (5, 8)), ("q", (5, 5)))
    ]
    target = [
        array_leaf("wi_1/kernel", (5, 8)),
        array_leaf("w2/kernel", (5, 8)),
        array_leaf("query/kernel", (5, 5)),
    ]
    assert [one.targets for one in named(source, target).undecided] == [("query/kernel",)]


def test_the_same_key_keeps_its_layout() -> None:
    said = named([array_leaf("a/kernel", (9, 9))], [array_leaf("a/kernel", (9, 9))])
    assert [(str(one.value), one.why) for one in said.formations] == [
        ("x", "the key and the shape are the same")
    ]


def test_dtypes_are_cast_last() -> None:
    source = [array_leaf(f"h.{n}.up_proj.weight", (8, 5)) for n in range(3)]
    target = [array_leaf("h/wi_1/kernel", (5, 3, 8), np.dtype("float16"))]
    assert list(values(named(source, target)).values()) == [
        "cast(rearrange(stack(xs), 'l a b -> b l a'), 'float16')"
    ]


@pytest.mark.parametrize(
    ("whole", "shape", "value"),
    [
        ((3, 8, 5), (8, 5), "x[1]"),
        ((8, 3, 5), (8, 5), "x[:, 1]"),
        ((5, 3, 8), (8, 5), "x[:, 1].T"),
        ((5, 2, 3, 4), (8, 5), "rearrange(x[:, :, 1], 'a b c -> (b c) a')"),
    ],
)
def test_parts_of_a_stack(whole: tuple[int, ...], shape: tuple[int, ...], value: str) -> None:
    target = [array_leaf(f"h.{n}.up_proj.weight", shape) for n in range(3)]
    said = values(named([array_leaf("h/wi_1/kernel", whole)], target))
    assert said["h.1.up_proj.weight"] == value


def test_layers_of_experts() -> None:
    source = [array_leaf(f"layers.{n}.mlp.experts.{e}.w1.weight", (8, 5)) for n in range(2) for e in range(3)]
    said = named(source, [array_leaf("layers/MoeBlock_0/wi_0", (3, 2, 5, 8))])
    assert list(values(said).values()) == ["rearrange(stack(xs), '(l e) a b -> e l b a', l=2)"]
    back = values(named([array_leaf("layers/MoeBlock_0/wi_0", (3, 2, 5, 8))], source))
    assert back["layers.1.mlp.experts.2.w1.weight"] == "x[2, 1].T"


def test_height_and_width_keep_their_order() -> None:
    source = [array_leaf("conv1.weight", (6, 5, 3, 3))]
    assert list(values(named(source, [array_leaf("conv1/kernel", (3, 3, 5, 6))])).values()) == [
        "rearrange(x, 'a b c f -> c f b a')"
    ]


def test_names_that_say_different_things_are_no_pair() -> None:
    source = [array_leaf(f"h.{n}.attn.q_proj.weight", (8, 8)) for n in range(3)]
    target = [array_leaf(f"layers_{n}/attn/key/kernel", (8, 8)) for n in range(3)]
    assert named(source, target) == Proposal((), ())


def test_parameters_are_not_slots_of_an_optimizer() -> None:
    source = [array_leaf("model.wte.weight", (8, 5)), array_leaf("optimizer.wte.exp_avg", (8, 5))]
    target = [
        array_leaf("opt_state/0/nu/wte/embedding", (8, 5)),
        array_leaf("opt_state/0/mu/wte/embedding", (8, 5)),
    ]
    said = named(source, target)
    assert {one.target: one.sources for one in said.formations} == {
        "opt_state/0/mu/wte/embedding": ("optimizer.wte.exp_avg",)
    }


def test_several_that_fit_are_open() -> None:
    source = [
        array_leaf(f"{side}/{name}/kernel", (8, 5))
        for side in ("left", "right")
        for name in ("query", "key", "out")
    ]
    target = [array_leaf(f"{name}/kernel", (5, 8)) for name in ("query", "key", "out")]
    said = named(source, target)
    assert said.formations == ()
    assert {one.why for one in said.undecided} == {
        "several source leaves fit, and neither names nor values tell them apart"
    }
    assert [candidate.sources for candidate in said.undecided[0].candidates] == [
        ("left/query/kernel",),
        ("right/query/kernel",),
    ]


def test_names_without_sizes_are_open() -> None:
    source = [array_leaf("a.query.weight", (8, 5))]
    (unclear,) = named(source, [array_leaf("a/q_proj/kernel", (9, 5))]).undecided
    assert unclear.why == "names resemble these, but neither sizes nor values fit"
    assert [(one.sources, one.value, one.how) for one in unclear.candidates] == [
        (("a.query.weight",), "", "")
    ]


def test_all_leaves_tell_which_numbers_are_indices() -> None:
    source = [array_leaf(f"h.{n}.q_proj.weight", (8, 5)) for n in range(4)]
    target = [array_leaf(f"layers_{n}/query/kernel", (8, 5)) for n in range(4)]
    said = named(source[2:], target[2:], source, target)
    assert {one.target: one.sources for one in said.formations} == {
        "layers_2/query/kernel": ("h.2.q_proj.weight",),
        "layers_3/query/kernel": ("h.3.q_proj.weight",),
    }


@pytest.mark.slow("aligns thousands of names")
def test_many_families_of_one_shape() -> None:
    chosen = random.Random(1)
    words = ["".join(chosen.choices("abcdefghij", k=5)) for _ in range(300)]
    keys = [(f"{a}.{b}.weight", f"{a}/{b}/kernel") for a, b in zip(words, words[3:] + words[:3], strict=True)]
    said = named([array_leaf(a, (4, 7)) for a, _ in keys], [array_leaf(b, (7, 4)) for _, b in keys])
    pairs = {one.target: one.sources for one in said.formations}
    assert len(pairs) > 270
    assert pairs.items() <= {b: (a,) for a, b in keys}.items()


@pytest.mark.parametrize("numbers", [(0, 2, 4), (3, 4, 5)])
def test_some_of_the_layers_keep_their_keys(numbers: tuple[int, ...]) -> None:
    source, target = (
        [array_leaf(f"h/{n}/{name}", (8, 8)) for n in layers for name in ("A", "a", "a_")]
        for layers in (range(6), numbers)
    )
    assert paired(named(source, target)) == {one.key.text: (one.key.text,) for one in target}


@pytest.mark.parametrize("last", ["mlp.4", "mlp.output", "mlp_head", "attention_pool"])
def test_the_last_part_of_a_model_can_be_its_logits(last: str) -> None:
    source = [array_leaf("mlp.0.weight", (8, 5)), array_leaf(f"{last}.weight", (3, 8))]
    target = [array_leaf("hidden/kernel", (5, 8)), array_leaf("logits/kernel", (8, 3))]
    assert paired(named(source, target))["logits/kernel"] == (f"{last}.weight",)


def test_indices_that_are_one_number_are_no_stack() -> None:
    source = [array_leaf(f"h.{number}.w", (4,)) for number in ("1", "01", "2")]
    (unclear,) = named(source, [array_leaf("h.w", (12,))]).undecided
    assert unclear.why == "names resemble these, but neither sizes nor values fit"


def test_a_norm_belongs_to_the_sublayer_beside_it() -> None:
    """As in T5, where only the numbers of sublayers tell the norms of a block apart."""
    words = {"attention": ("0.SelfAttention.q", "query"), "mlp": ("1.DenseReluDense.wo", "wo")}
    keys = {}
    for n in range(3):
        for part, (theirs, ours) in words.items():
            keys[f"block.{n}.layer.{theirs}.weight"] = f"layers_{n}/{part}/{ours}/kernel", (8, 12)
            norm = f"layers_{n}/pre_{part}_layer_norm/scale", (8,)
            keys[f"block.{n}.layer.{theirs[0]}.layer_norm.weight"] = norm
    source = [array_leaf(key, shape) for key, (_, shape) in keys.items()]
    target = [array_leaf(key, shape) for key, shape in keys.values()]
    assert paired(named(source, target)) == {ours: (theirs,) for theirs, (ours, _) in keys.items()}


def test_a_part_of_an_attention_is_no_logits() -> None:
    source = [array_leaf("decoder.block.0.layer.0.SelfAttention.o.weight", (8, 8))]
    assert paired(named(source, [array_leaf("decoder/logits_dense/kernel", (8, 8))])) == {}
