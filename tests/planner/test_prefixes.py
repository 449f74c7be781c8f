"""Rules that are suggested for leaves which a source has below another prefix."""

from collections.abc import Sequence

import pytest

from ckpt_surgery.graph.nodes import Read
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.prefixes import suggestions
from tests.support.leaves import listing

MODEL = ["conv/kernel", "conv/bias", "bn/scale"]


def below(prefix: str, keys: Sequence[str] = MODEL, end: str = "") -> list[str]:
    return [f"{prefix}{key}{end}" for key in keys]


def rules_for(target: Sequence[str] | dict[str, str], source: Sequence[str] | dict[str, str]) -> list[str]:
    leaves = listing(target)
    offered = {
        text: Entry(leaf.key, leaf, Read("source", leaf), None) for text, leaf in listing(source).items()
    }
    missing = [text for text in leaves if text not in offered]
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
        (below("$x/"), MODEL),  # a template would take it for something else
    ],
)
def test_nothing_is_suggested_where_it_may_be_wrong(
    target: list[str] | dict[str, str], source: list[str] | dict[str, str]
) -> None:
    assert rules_for(target, source) == []
