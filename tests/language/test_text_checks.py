"""Checks of single expressions against the names that they can use."""

import regex

from ckpt_surgery.language.expressions import parse
from ckpt_surgery.language.naming import MEANINGS
from ckpt_surgery.language.text_checks import explained_names, expression_findings

PATTERN = regex.compile("(?P<n>.)(.)")


def found(text: str, *known: str, groups: bool = True) -> list[tuple[str, int | None, int | None]]:
    findings = list(expression_findings(("value",), parse(text), frozenset(known), PATTERN, groups))
    assert all(finding.path == ("value",) for finding in findings)
    return [(finding.message, finding.start, finding.end) for finding in findings]


def test_known_names_are_fine() -> None:
    assert found("x + n", "x", "n") == []
    assert found("g[2] + g['n']", "g") == []


def test_unknown_names_and_groups() -> None:
    assert found("1 + zz", "n") == [("unknown name `zz`", 4, 6)]
    assert found("g[3]", "g") == [("the regular expression has no group 3", 0, 4)]
    assert found("g[3]", "g", groups=False) == []


def test_a_name_of_elsewhere_says_where_it_belongs() -> None:
    assert found("2 * x", "n") == [(MEANINGS["x"], 4, 5)]
    assert found("g[3]") == [(MEANINGS["g"], 0, 1)]
    assert explained_names(["x", "zz"], frozenset({"n"})) == (frozenset({"n", "x"}), ["x"])


def test_a_pattern_that_is_written_out_is_compiled() -> None:
    ((message, start, end),) = found("1 + count('(')")
    assert message.startswith("not a regular expression")
    assert (start, end) == (4, 14)
    assert found("count('a|b')") == []
