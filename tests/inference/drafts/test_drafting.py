"""Findings as a recipe: what is written, and that it does what was found."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import einops
import numpy as np
import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.functions.arrays import Node, Read, reads
from ckpt_surgery.inference.drafts.drafting import Draft, draft_recipe
from ckpt_surgery.inference.drafts.indices import expression_of
from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    ConflictEntry,
    Evidence,
    Findings,
    Formation,
    Undecided,
    Value,
)
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.yaml.parsing import parse_document
from tests.support.evaluation import evaluate
from tests.support.plans import plan_of

Made = tuple[str, str | Sequence[str], str] | tuple[str, str | Sequence[str], str, Sequence[int]]
"""Target, sources, value, and the numbers in its holes."""
LAYERS = range(4)
SHAPE = (4, 6)
SLOTS = ["a/w", "b/w", "c/s", "d/s", "e/z", "f/z"]
EVIDENCE = "# Evidence: {}, except where a comment says otherwise."


def found(
    made: Iterable[Made],
    dropped: Iterable[str] = (),
    from_target: Iterable[str] = (),
    undecided: Sequence[Undecided] = (),
) -> Findings:
    """Findings by values."""
    formations = [formation(*one) for one in made]
    sources = [source for one in formations for source in one.sources]
    return Findings(
        tuple(dict.fromkeys([*sources, *dropped])),
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


def rules_of(draft: Draft) -> str:
    """The text after the head, without the comments about evidence."""
    lines = draft.text.splitlines()
    assert lines[:3] == [EVIDENCE.format("values"), "version: 1", "unmatched: error"]
    return "\n".join(line for line in lines[3:] if line != "rules:")


@pytest.mark.each
@pytest.mark.parametrize(
    ("moves", "dropped", "text"),
    [
        ([("b", "a", "x.T")], [], "  - {match: a, to: b, value: x.T}"),
        ([("a", "a", "x.T")], [], "  - {match: a, value: x.T}"),  # the key stays
        ([("a", "a", "x"), ("b", "a", "x.T")], [], "  - {match: a, to: {a: x, b: x.T}}"),  # and the leaf too
        (
            [(f"block_{i:03d}/w", f"h.{i}.w", "x.T") for i in LAYERS],
            [],
            r"""  - {match: 'h\.(?P<n>\d+)\.w', to: "block_${f'{int(n):03d}'}/w", value: x.T}""",
        ),
        (
            [(f"h/{i + 1}/w", f"block_{i:03d}/w", "x.T") for i in LAYERS],
            [],
            r"""  - {match: 'block_(?P<n>\d+)/w', to: 'h/${int(n) + 1}/w', value: x.T}""",
        ),
        (
            [("w", [f"h/{i}/w" for i in LAYERS], "stack(xs)")],
            [],
            r"""  - {match: 'h/(?P<n>\d+)/w', to: w, by: int(n), value: stack(xs)}""",
        ),
        (
            [("w", [f"h/{i}/w" for i in (2, 0, 3, 1)], "stack(xs)")],  # an odd order
            [],
            "tables: {order: {'2': 0, '0': 1, '3': 2, '1': 3}}\n"
            r"""  - {match: 'h/(?P<n>\d+)/w', to: w, by: 'order[n]', value: stack(xs)}""",
        ),
        (
            [("w", [f"h.{i}.{e}" for i in range(2) for e in LAYERS], "stack(xs)")],  # experts in layers
            [],
            r"""  - {match: 'h\.(?P<n>\d+)\.(?P<m>\d+)', to: w, by: int(n) * 4 + int(m), value: stack(xs)}""",
        ),
        (
            [(f"layers_{i}/w", "layers/w", "x[{0}]", [i]) for i in LAYERS],
            [],
            "  - {match: layers/w, for: {i: range(4)}, to: 'layers_${i}/w', value: 'x[i]'}",
        ),
        (
            [(f"l/{i}/{e}", "w", "x[{0}, {1}:]", [i, e]) for i in range(2) for e in range(3)],
            [],
            "  - {match: w, for: {i: range(6)}, to: 'l/${i // 3}/${i % 3}', value: 'x[i // 3, i % 3:]'}",
        ),
        (
            [(f"l/{i}", "w", "x[:, {0}:{1}]", [i + 2, i + 4]) for i in (0, 2)],
            [],
            "  - {match: w, for: {i: range(2)}, to: 'l/${i * 2}', value: 'x[:, i * 2 + 2:i * 2 + 4]'}",
        ),
        (
            [
                (f"l/{i}/{w}", f"l/{i}/qk", "x[{0}:{1}]", [j, j + 2])
                for i in LAYERS
                for j, w in ((0, "q"), (2, "k"))
            ],
            [],
            r"""  - {match: 'l/(?P<n>\d+)/qk', to: {'l/${n}/q': 'x[0:2]', 'l/${n}/k': 'x[2:4]'}}""",
        ),
        (
            [(f"l/{i}", [f"l/{i}/{w}" for w in "qk"], "concat(xs)") for i in LAYERS],
            [],
            "tables: {order: {q: 0, k: 1}}\n  - {match: 'l/(?P<n>\\d+)/(?P<word>q|k)', to: 'l/${n}', "
            "by: 'order[word]', value: concat(xs)}",
        ),
        (
            [(f"l/{i}/w", [f"l/{i}/w", f"l/{i}/b", f"l/{i}/a"], "xs[0] + xs[1] - xs[2]") for i in LAYERS],
            [],
            "tables: {order: {w: 0, b: 1, a: 2}}\n"
            r"""  - {match: 'l/(?P<n>\d+)/(?P<word>w|b|a)', to: 'l/${n}/w', by: 'order[word]', """
            r"""value: 'xs[0] + xs[1] - xs[2]'}""",
        ),
        (
            [(f"n/{i}/w", f"h/{i}/w", "x.T") for i in range(3)],
            [f"h/{i}/w" for i in range(3, 8)],
            r"""  - {match: 'h/(?P<n>\d+)/w', when: int(n) < 3, to: 'n/${n}/w', value: x.T}"""
            "\n"
            r"""  - {match: 'h/(?P<n>\d+)/w', when: int(n) >= 3, drop: true}""",
        ),
        (
            [(w, [f"{i}" for i in range(s, 8, 2)], "stack(xs)") for s, w in enumerate(("a", "b"))],
            [],
            "tables: {names: {'0': a, '1': b}}\n"
            r"""  - {match: '(?P<n>\d+)', to: '${names[str(int(n) % 2)]}', by: int(n) // 2, """
            "value: stack(xs)}",
        ),
        (
            [(f"{t}/a/{k}", f"{t}/{k}/w", "x.T") for t in ("params", "opt/0/mu") for k in ("q", "k")],
            [],
            "  - {match: '(?P<word>params|opt/0/mu)/(?P<part>q|k)/w', to: '${word}/a/${part}', value: x.T}",
        ),
        (
            [(f"new/{i + 1}/{k}", f"old/{i}/{k}", "x") for i in LAYERS for k in ("a/b", "c")],
            [],
            r"""  - {match: 'old/(?P<n>\d+)/(?P<rest>.*)', to: 'new/${int(n) + 1}/${rest}'}""",
        ),
        (
            [("a/b", "a/b", "x"), ("a/c", "a/c", "x"), ("e", "d", "x")],
            [],
            "  - {match: a/.*}\n  - {match: d, to: e}",
        ),
        (
            [("a", "a", "x.T")],
            ["opt/mu/a", "opt/mu/b", "opt/nu", "step"],
            "  - {match: a, value: x.T}\n  - {match: opt/.*, drop: true}\n  - {match: step, drop: true}",
        ),
        (
            [("n/q", "o/q", "x.T"), ("n/k", "o/k", "x")],  # not the same value
            [],
            "  - {match: o/q, to: n/q, value: x.T}\n  - {match: o/k, to: n/k}",
        ),
        (  # a word that a component ends with, and one that is followed by another
            [
                (f"{new}{i}/w", f"a_{old}{i}/w", "x.T")
                for new, old in (("A", "a"), ("B", "b"), ("c/", "c"))
                for i in range(3)
            ],
            [],
            r"""  - {match: 'a_a(?P<n>\d+)/w', to: 'A${n}/w', value: x.T}"""
            "\n"
            r"""  - {match: 'a_b(?P<n>\d+)/w', to: 'B${n}/w', value: x.T}"""
            "\n"
            r"""  - {match: 'a_c(?P<n>\d+)/w', to: 'c/${n}/w', value: x.T}""",
        ),
        (
            [(f"n/{i}", f"h/{i}", "x.T") for i in (2, 3, 4)],
            ["h/0", "h/1", "h/9"],
            r"""  - {match: 'h/(?P<n>\d+)', when: 2 <= int(n) < 5, to: 'n/${n}', value: x.T}"""
            "\n"
            r"""  - {match: 'h/(?P<n>\d+)', when: 'int(n) in [0, 1, 9]', drop: true}""",
        ),
        (
            [(f"n/{i // 3 + 1}/{i % 3}", f"h/{i}", "x.T") for i in range(6)],
            [],
            r"""  - {match: 'h/(?P<n>\d+)', to: 'n/${int(n) // 3 + 1}/${int(n) % 3}', value: x.T}""",
        ),
        (  # numbers that run the other way
            [(f"n/{90 - i}", f"h/{i}", "x.T") for i in range(90)],
            [],
            r"""  - {match: 'h/(?P<n>\d+)', to: 'n/${90 - int(n)}', value: x.T}""",
        ),
        (  # layers that move up, below others that stay
            [(f"h/{i + 2 * (i > 7)}/{w}", f"h/{i}/{w}", "x") for i in range(24) for w in "ab"],
            [],
            r"""  - {match: 'h/(?P<n>\d+)/.*', when: int(n) < 8}"""
            "\n"
            r"""  - {match: 'h/(?P<n>\d+)/(?P<rest>.*)', when: int(n) >= 8, to: 'h/${int(n) + 2}/${rest}'}""",
        ),
        (  # all layers but a few
            [(f"n/{i}", f"h/{i}", "x.T") for i in range(24) if i not in (3, 7, 8)],
            ["h/3", "h/7", "h/8"],
            r"""  - {match: 'h/(?P<n>\d+)', when: 'int(n) not in [3, 7, 8]', to: 'n/${n}', value: x.T}"""
            "\n"
            r"""  - {match: 'h/(?P<n>\d+)', when: 'int(n) in [3, 7, 8]', drop: true}""",
        ),
        (  # a stack along three indices
            [("n", [f"h/{i}/{e}/{w}" for w in "ba" for i in range(2) for e in range(4)], "stack(xs)")],
            [],
            "tables: {order: {b: 0, a: 1}}\n"
            r"""  - match: 'h/(?P<n>\d+)/(?P<m>\d+)/(?P<word>b|a)'"""
            "\n    to: n\n    by: 'order[word] * 8 + int(n) * 4 + int(m)'\n    value: stack(xs)",
        ),
        (  # numbers in names, of which several make one leaf
            [(f"n/{i}", [f"h/{i}/w{k}" for k in (1, 4)], "concat(xs)") for i in range(3)],
            [f"h/{i}/w{k}" for k in (2, 3) for i in range(3)],
            "tables: {order: {'1': 0, '4': 1}}\n"
            r"""  - match: 'h/(?P<n>\d+)/w(?P<m>\d+)'"""
            "\n    when: int(m) % 3 == 1\n    to: 'n/${n}'\n    by: 'order[m]'\n    value: concat(xs)"
            "\n"
            r"""  - {match: 'h/\d+/w(?P<m>\d+)', when: 2 <= int(m) < 4, drop: true}""",
        ),
        (  # slices of leaves that are looked up
            [("n", ["a", "b", "a", "c"], "concat([stack(xs[0:2]), stack(xs[2:4])])")],
            [],
            "  - {add: n, value: "
            """"concat([stack([source['a'], source['b']]), stack([source['a'], source['c']])])"}""",
        ),
        (  # slots that all end in the same way
            [(f"n/{key}", f"s/{key}/v", "x.T") for key in SLOTS],
            [f"s/{key}/m" for key in SLOTS],
            "  - {match: 's/(?P<word>a|b)/w/v', to: 'n/${word}/w', value: x.T}\n"
            "  - {match: 's/(?P<word>c|d)/s/v', to: 'n/${word}/s', value: x.T}\n"
            "  - {match: 's/(?P<word>e|f)/z/v', to: 'n/${word}/z', value: x.T}\n"
            "  - {match: s/.*/m, drop: true}",
        ),
        (  # digits that are no numbers
            [(f"n/{new}/w", f"o/{old}/x", "x.T") for new, old in (("²", "a"), ("³", "b"))],
            [],
            "tables: {names: {a: '²', b: '³'}}\n"
            "  - {match: 'o/(?P<word>a|b)/x', to: 'n/${names[word]}/w', value: x.T}",
        ),
    ],
)
def test_rules(moves: list[Made], dropped: list[str], text: str) -> None:
    findings = found(moves, dropped)
    assert rules_of(draft_recipe(findings)) == text
    check(findings)


def test_a_remainder_by_a_large_number() -> None:
    assert expression_of([i % 70 for i in range(140)], {"int(n)": range(140)}) == "int(n) % 70"


def test_a_model_takes_few_rules() -> None:
    draft = draft_recipe(llama(32))
    assert len(draft.rules) == 7
    assert [(rule.claims, rule.outputs) for rule in draft.rules] == [
        *((2, 2), (1, 1), (96, 3), (32, 1), (96, 3), (64, 2), (32, 0))
    ]
    check(llama(3))


def test_words_are_looked_up_in_one_table_as_long_as_they_agree() -> None:
    moves: list[Made] = [
        *((f"t/{new}", f"a.{old}.w", "x.T") for old, new in (("q", "query"), ("k", "key"))),
        *((f"u/{new}", f"b.{old}.w", "x") for old, new in (("q", "query"), ("v", "value"))),
        *((f"v/{new}", f"c.{old}.w", "x + 1") for old, new in (("q", "other"), ("v", "value"))),
    ]
    draft = draft_recipe(found(moves))
    assert draft.document["tables"] == {
        "names": {"q": "query", "k": "key", "v": "value"},
        "names2": {"q": "other", "v": "value"},
    }
    assert len(draft.rules) == 3


def test_long_lists_of_words_are_several_rules() -> None:
    words = ["a_long_name_of_a_leaf_" + "".join(two) for two in itertools.product("abcdefghij", repeat=2)]
    draft = draft_recipe(found([(f"n/{word.upper()}", f"o/{word}/w", "x.T") for word in words]))
    assert [rule.claims for rule in draft.rules] == [55, 45]


def test_words_as_long_as_a_pattern_may_be_stay_apart() -> None:
    draft = draft_recipe(found([(f"n/{c}/w", f"o/{c * 1600}/v", "x.T") for c in "ab"]))
    assert [rule.claims for rule in draft.rules] == [1, 1]


def test_experts_in_another_order_in_each_layer() -> None:
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(64), (4, 1)), axis=1)
    moves: list[Made] = [
        (f"n/{layer}/e/{new}/w", f"o/{layer}/x/{old}/w", "x.T")
        for layer, order in enumerate(orders)
        for new, old in enumerate(order)
    ]
    assert [rule.claims for rule in draft_recipe(found(moves)).rules] == [64] * 4


# --- comments ---------------------------------------------------------------------------------------------


def test_a_whole_text() -> None:
    candidate = Candidate(("h.0.w", "h.1.w"), "stack(xs)", 0.404, "stack")
    findings = Findings(
        ("a", "b", "h.0.w", "h.1.w"),
        ("b", "c", "d"),
        (
            formation("b", "a", "x.T", evidence=Evidence.ARITHMETIC, why="first"),
            formation("c", "b", "x.T", evidence=Evidence.VALUES),
        ),
        undecided=(Undecided(("d",), "several fit", (candidate,)), Undecided(tuple("efghi"), "none fits")),
        conflicts=(ConflictEntry("c", ("b",), ("h.0.w",)),),
    )
    assert draft_recipe(findings, ["Drafted.", "", "  apply it\nnow"]).text == (
        "# Drafted.\n#\n#   apply it\\nnow\n"
        f"{EVIDENCE.format('values')}\n"
        "# values over names: c is b by its values, h.0.w by its name\n"
        "# not decided: d: several fit\n"
        "#   stack of h.0.w, h.1.w: stack(xs) (names: 0.40)\n"
        "# not decided: e, f, g and 2 more: none fits\n"
        "version: 1\nunmatched: error\nrules:\n"
        "  # values after arithmetic: first\n"
        "  - {match: a, to: b, value: x.T}\n"
        "  - {match: b, to: c, value: x.T}\n"
    )


def test_what_is_known_of_rules() -> None:
    moves: list[Made] = [
        (f"{w}/{i}", f"h/{i}/{w}", v) for i in LAYERS for w, v in (("a", "x.T"), ("b", "x + 1"))
    ]
    draft = draft_recipe(found(moves, ["z"]), ["One line."])
    assert [(one.rule, one.line, one.claims, one.outputs, one.evidence) for one in draft.rules] == [
        ("rules[0]", 6, 4, 4, Evidence.VALUES),
        ("rules[1]", 7, 4, 4, Evidence.VALUES),
        ("rules[2]", 8, 1, 0, None),
    ]
    lines = draft.text.splitlines()
    assert all(lines[one.line - 1].startswith("  - {match:") for one in draft.rules)
    assert parse_document(draft.text, "").value == draft.document


def test_subtrees_say_how_many_leaves_have_more_evidence() -> None:
    formations = [
        formation("b/x", "a/x", evidence=Evidence.VALUES),
        formation("b/y", "a/y", evidence=Evidence.ONLY_LAYOUT),
    ]
    draft = draft_recipe(Findings(("a/x", "a/y"), ("b/x", "b/y"), tuple(formations)))
    (rule,) = draft.rules
    assert (rule.evidence, rule.why) == (Evidence.ONLY_LAYOUT, "values for 1 of 2 leaves")
    assert draft.text.startswith(EVIDENCE.format(Evidence.ONLY_LAYOUT))
    assert "  # names, the only layout that fits: values for 1 of 2 leaves\n" in draft.text


def test_evidence_does_not_keep_leaves_apart_that_are_made_alike() -> None:
    formations = [
        *(formation(f"b/{n}", f"a/{n}", "x.T") for n in range(3)),
        *(formation(f"c/{w}", f"{w}.c", "x.T", evidence=Evidence.ANALOGY, why="so") for w in "pq"),
        formation("c/r", "r.c", "x.T"),
        formation("z", "y", "x + 1", evidence=Evidence.VALUES),
    ]
    draft = draft_recipe(
        Findings(
            tuple(one.sources[0] for one in formations),
            tuple(one.target for one in formations),
            tuple(formations),
        )
    )
    assert [(one.evidence, one.why) for one in draft.rules] == [
        (Evidence.VALUES, ""),
        (Evidence.ANALOGY, "values for 1 of 3 leaves; so"),
        (Evidence.VALUES, ""),
    ]
    assert [line for line in draft.text.splitlines() if "#" in line] == [
        EVIDENCE.format("values"),
        "  # names, layout as of the others: values for 1 of 3 leaves; so",
    ]


@pytest.mark.parametrize(
    ("undecided", "policy", "rules"),
    [((), "keep", 1), ((Undecided(("t",), "none fits"),), "error", 5)],
)
def test_leaves_that_stay(undecided: tuple[Undecided, ...], policy: str, rules: int) -> None:
    """Four rules would be needed for them; where anything is undecided, they are written."""
    kept = ["a/b/w", "c.d", "e", "f/g/1"]
    findings = found([*((key, key, "x") for key in kept), ("z", "y", "x.T")], undecided=undecided)
    draft = draft_recipe(findings)
    assert draft.document["unmatched"] == policy
    assert len(draft.rules) == rules


def test_leaves_of_the_target() -> None:
    draft = draft_recipe(
        found([("a", "b", "x")], from_target=["head/kernel", "head/bias", "x/1/s", "x/2/s", "xy"])
    )
    assert rules_of(draft) == (
        "  - {match: b, to: a}\n  - {fill: '(?:head|x)/.*', fallback: true}\n  - {fill: xy, fallback: true}"
    )


def test_nothing_is_found() -> None:
    draft = draft_recipe(Findings(("a",), ("b",), (), undecided=(Undecided(("b",), "none fits"),)))
    assert draft.text == "# not decided: b: none fits\nversion: 1\nunmatched: error\nrules: []\n"
    parse_recipe(draft.text, "draft.yaml")


# --- what the drafts do -----------------------------------------------------------------------------------


def check(findings: Findings) -> None:
    """The plan of the draft makes each leaf of what was found, with the value that was found, and no more."""
    draft = draft_recipe(findings)
    arrays = {
        key: np.arange(24, dtype=np.float32).reshape(SHAPE) + 100 * number
        for number, key in enumerate(findings.source_keys)
    }
    values = {one.target: expected(one, arrays) for one in findings.formations}
    target = {key: f"float32[{','.join(map(str, value.shape))}]" for key, value in values.items()}
    target |= dict.fromkeys(findings.from_target, "float32[1]")
    try:
        plan = plan_of(
            draft.text,
            dict.fromkeys(findings.source_keys, "float32[4,6]"),
            target=target if findings.from_target else None,
        )
    except PlanError as error:
        pytest.fail(f"{draft.text}\n{error}")
    steps = {step.leaf.key.text: step for step in plan.steps}
    assert steps.keys() == target.keys(), draft.text
    for one in findings.formations:
        value = steps[one.target].value
        assert {read.leaf.key.text for read in reads(value)} == set(one.sources), draft.text
        np.testing.assert_array_equal(computed(value, arrays), values[one.target], err_msg=draft.text)
    assert {drop.leaf.key.text for drop in plan.dropped} == set(findings.dropped), draft.text
    outputs = sum(rule.outputs for rule in draft.rules)
    assert outputs == len(target) or draft.document["unmatched"] == "keep"


def expected(one: Formation, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of a formation as NumPy and einops compute it."""
    xs = [arrays[source] for source in one.sources]
    names: dict[str, Any] = {"x": xs[0], "xs": xs, "concat": np.concatenate, "rearrange": einops.rearrange}
    names["stack"] = lambda several, axis=0: np.stack(several, axis)
    value = eval(str(one.value), names)
    assert isinstance(value, np.ndarray)
    return value


def computed(node: Node, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of a step."""
    if isinstance(node, Read):
        return arrays[node.leaf.key.text]
    return evaluate(node.function, [computed(one, arrays) for one in node.inputs])
