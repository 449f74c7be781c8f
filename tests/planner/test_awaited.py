"""All problems of a pass are told at once, and nothing is blamed for what another mistake has caused."""

import pytest

from tests.support.passes import rules_of
from tests.support.plans import plan_of, problems_of

SOURCE = {"a": "float32[2]", "b": "float32[2]", "d": "float32[3]", "i": "float32[2]"}
TARGET = {"a": "float32[3]", "c": "float32[4]", "d": "float32[3]", "i": "int32[2]", "n/e": "float32[2]"}


def messages_of(*rules: str, target: dict[str, str] = TARGET, head: str = "") -> list[str]:
    problems = problems_of(plan_of, rules_of(*rules, head=head), SOURCE, target=target)
    return [problem.message for problem in problems]


def missing_in(messages: list[str]) -> list[str]:
    """The keys of the problem of leaves that nothing gives."""
    found = [message.partition(": ")[2] for message in messages if " have no source: " in f" {message}"]
    found += [message.partition(": ")[2] for message in messages if " has no source: " in message]
    return [keys.partition(";")[0] for keys in found]


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        # What the rule may have been meant to give is not missing besides.
        ("match: nope, to: c", ["`n/e`"]),
        (r"match: 'nope/(.*)', to: 'n/\1'", ["`c`"]),
        (r"match: 'nope/(?P<k>.*)', to: 'n/${k}'", ["`c`"]),
        (r"match: 'nope/(.*)', to: '\1'", []),
        ("match: nope, to: {c: x, z: x}", ["`n/e`"]),
        ("match: c", ["`n/e`"]),
        ("match: c, drop: true", ["`c`, `n/e`"]),
        ("fill: c, from: nope", ["`n/e`"]),
        ("fill: 'n/.*', from: nope", ["`c`"]),
        ("add: c, value: \"source['nope']\"", ["`n/e`"]),
        ("match: b, to: c, value: 'x[:, :, 1]'", ["`n/e`"]),
        ("match: b, to: c, value: stack(xs), by: '1/0'", ["`n/e`"]),
        ("match: 'n(.*)', to: 'm[0]/x'", ["`c`, `n/e`"]),
    ],
)
def test_keys_of_a_rule_that_failed_are_not_missing_besides(rule: str, missing: list[str]) -> None:
    assert missing_in(messages_of(rule)) == missing


def test_leaves_that_unmatched_refuses_are_not_missing_besides() -> None:
    messages = messages_of("match: b", head="unmatched: error\n")
    assert missing_in(messages) == ["`c`, `n/e`"]
    assert [m for m in messages if "no rule claims `a`, `d`, `i`" in m]


def test_mirrored_keys_of_a_rule_that_failed() -> None:
    source = {"p/w": "float32[2]", "mu/w": "float32[2]"}
    target = {"q": "float32[2]", **{f"{at}/{key}": "float32[2]" for at in ("p", "mu") for key in "vw"}}
    text = rules_of(r"match: p/nope, to: p/v", head="mirror: {p: [mu]}\n")
    problems = problems_of(plan_of, text, source, target=target)
    assert missing_in([problem.message for problem in problems]) == ["`q`"]


def test_dtypes_are_told_with_the_rest() -> None:
    target = {"a": "int4[2]", "b": "bool[3]", "c": "float32[4]"}
    messages = messages_of("match: d, to: b, value: 'x[9]'", target=target)
    assert missing_in(messages) == ["`c`"]


@pytest.mark.parametrize(
    "rule",
    [
        "fill: w, value: \"arange(24, 'float32')\"",
        "fill: w, from: v, value: \"reshape(x, 'a')\"",
        "add: w, value: \"arange(24, 'float32')\"",
        "match: v, to: {w: \"reshape(x, 'a')\", v: x}",
        "match: v, to: {w: \"pad(x, 0, '24')\", v: x}",
    ],
)
def test_a_leaf_whose_value_failed_has_no_wrong_shape(rule: str) -> None:
    source, target = {"w": "float32[2,3]", "v": "float32[6]"}, {"w": "float32[24]", "v": "float32[6]"}
    (problem,) = problems_of(plan_of, rules_of(rule), source, target=target)
    assert "has shape" not in problem.message
