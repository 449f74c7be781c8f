"""Rules that are suggested for leaves which a source has below another prefix."""

from collections.abc import Mapping, Sequence

import pytest

from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.prefixes import look_alike, suggestions
from tests.support.leaves import listing

Listing = Sequence[str] | dict[str, str]
MODEL = ["conv/kernel", "conv/bias", "bn/scale"]


def below(prefix: str, keys: Sequence[str] = MODEL, end: str = "") -> list[str]:
    return [f"{prefix}{key}{end}" for key in keys]


def offers(listings: Mapping[str, Listing]) -> dict[str, dict[str, Entry]]:
    """Leaves of each source that no rule claims."""
    return {
        name: {text: Entry(leaf.key, leaf, Read(name, leaf)) for text, leaf in listing(leaves).items()}
        for name, leaves in listings.items()
    }


def rules_for(target: Listing, *sources: Listing, names: Sequence[str] = ("first", "second")) -> list[str]:
    leaves, offered = listing(target), offers(dict(zip(names, sources, strict=False)))
    missing = [text for text in leaves if text not in offered[names[0]]]
    return [one.rule for one in suggestions(missing, leaves, offered)]


@pytest.mark.parametrize(
    ("target", "source", "rules"),
    [
        (MODEL, below("params/"), [r"{match: 'params/(.*)', to: '\1'}"]),
        (MODEL, below("state/params/"), [r"{match: 'state/params/(.*)', to: '\1'}"]),
        (below("params/"), MODEL, [r"{match: '(.*)', to: 'params/\1'}"]),
        (below("model/net/"), below("params/"), [r"{match: 'params/(.*)', to: 'model/net/\1'}"]),
        (below("target/"), below("_optimizer/target/"), [r"{match: '_optimizer/(.*)', to: '\1'}"]),
        (MODEL, below("", end="/value"), [r"{match: '(.*)/value', to: '\1'}"]),
        (below("", end="/value"), MODEL, [r"{match: '(.*)', to: '\1/value'}"]),
        (MODEL, below("params/", end="/value"), [r"{match: 'params/(.*)/value', to: '\1'}"]),
        (  # the parameters, not an optimizer's slots, which look the same
            MODEL,
            [*below("opt_state/0/mu/"), *below("opt_state/0/nu/"), *below("params/")],
            [r"{match: 'params/(.*)', to: '\1'}"],
        ),
        (  # other leaves keep their names
            [*below("params/"), "step"],
            [*MODEL, "step"],
            [r"{match: '((?:bn|conv)(?:/.*)?)', to: 'params/\1'}"],
        ),
        (  # the narrow rule first: the wide one would claim its leaves
            [*MODEL, "top/out/kernel", "top/out/bias"],
            [*below("params/"), "params/head/kernel", "params/head/bias"],
            [r"{match: 'params/head/(.*)', to: 'top/out/\1'}", r"{match: 'params/(.*)', to: '\1'}"],
        ),
        ([*MODEL, "state/1"], [*below("a/"), "a/state/1"], [r"{match: 'a/(.*)', to: '\1'}"]),
        (below("model/"), [*below("params/"), *below("ema/")], [r"{match: 'params/(.*)', to: 'model/\1'}"]),
        (
            [*below("layer_0/"), *below("layer_1/")],
            [*below("0/"), *below("1/")],
            [r"{match: '0/(.*)', to: 'layer_0/\1'}", r"{match: '1/(.*)', to: 'layer_1/\1'}"],
        ),
        (below("$x/"), MODEL, [r"{match: '(.*)', to: '$$x/\1'}"]),
        (below("a\\b/"), MODEL, [r"{match: '(.*)', to: 'a\\b/\1'}"]),
        (MODEL, below("it's a (b)/"), [r"{match: 'it''s a \(b\)/(.*)', to: '\1'}"]),
        (  # a chain of transformations got one more
            ["opt_state/1/mu/w", "opt_state/1/nu/w", "opt_state/1/count"],
            ["opt_state/0/mu/w", "opt_state/0/nu/w", "opt_state/0/count"],
            [r"{match: 'opt_state/0/(.*)', to: 'opt_state/1/\1'}"],
        ),
        (
            ["0/trace/a/w", "0/trace/b/w"],
            ["opt_state/0/trace/a/w", "opt_state/0/trace/b/w", *MODEL],
            [r"{match: 'opt_state/(.*)', to: '\1'}"],
        ),
        (  # two subtrees, two prefixes
            [*below("encoder/"), *below("decoder/", ["out/kernel", "out/bias"])],
            [*below("a/"), *below("b/", ["out/kernel", "out/bias"])],
            [r"{match: 'a/(.*)', to: 'encoder/\1'}", r"{match: 'b/(.*)', to: 'decoder/\1'}"],
        ),
    ],
)
def test_leaves_below_another_prefix(target: list[str], source: list[str], rules: list[str]) -> None:
    assert rules_for(target, source) == rules


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (MODEL, [*below("a/"), *below("b/")]),  # either would do
        ({"w": "float32[2]"}, {"params/w": "float32[3]"}),  # another shape
        ({"w": "string"}, {"params/w": "float32[3]"}),
        (MODEL, ["other/weights"]),
        ({"a/w": "float32[2]", "b/w": "float32[2]"}, {"a/w": "float32[2]"}),  # it would be missing as a/w
        (MODEL, [*below("policy/"), *below("value/params/")]),
        (["out/kernel"], ["lm_head/kernel"]),  # the name of one leaf says nothing
        # moments are not parameters, nor other moments
        ([*MODEL, *below("ema/")], [*MODEL, *below("opt_state/0/mu/")]),
        ([*MODEL, *below("opt_state/0/mu/")], [*MODEL, *below("ema/")]),
        ([*MODEL, *below("opt_state/0/mu/")], [*MODEL, *below("opt_state/0/trace/")]),
    ],
)
def test_nothing_is_suggested_where_it_may_be_wrong(target: Listing, source: Listing) -> None:
    assert rules_for(target, source) == []


def test_leaves_of_several_sources() -> None:
    head = ["head/out/kernel", "head/out/bias"]
    wrapped = below("params/", head)
    rules = rules_for([*MODEL, *head], below("params/"), wrapped)
    assert rules == [r"{match: 'params/(.*)', to: '\1'}", r"{match: 'params/(.*)', to: '\1', source: second}"]
    assert rules_for([*MODEL, *head], MODEL, head) == ["{match: '(.*)', source: second}"]
    assert rules_for([*MODEL, *head], MODEL, [*head, *MODEL]) == [  # the first source's own leaves stay
        "{match: '((?:head)(?:/.*)?)', source: second}"
    ]
    towers = [*below("image/"), *below("text/")]
    assert rules_for(towers, MODEL, MODEL) == []
    assert rules_for(towers, MODEL, MODEL, names=("text", "image")) == [
        r"{match: '(.*)', to: 'image/\1', source: image}",
        r"{match: '(.*)', to: 'text/\1'}",
    ]


def test_most_leaves_have_to_fit() -> None:
    """The others are refused afterwards, each with its shape."""
    shapes = dict.fromkeys(MODEL, "float32[2]")
    source = {f"params/{key}": shape for key, shape in shapes.items()}
    assert rules_for({**shapes, "bn/scale": "float32[3]"}, source) == [r"{match: 'params/(.*)', to: '\1'}"]
    assert rules_for({**shapes, "bn/scale": "float32[3]", "conv/bias": "float32[3]"}, source) == []


def test_what_a_leaf_of_the_target_may_be() -> None:
    leaves, offered = (
        listing([*MODEL, "top/q"]),
        offers({"first": [*MODEL, "a/q", "b/q", "c/k", "opt_state/0/mu/q"]}),
    )
    assert list(look_alike("top/q", leaves, offered.values())) == ["a/q", "b/q"]
