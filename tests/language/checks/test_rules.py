"""Checks of one rule: which fields go together, and which names its expressions can use."""

from typing import Any

import pytest
import regex

from ckpt_surgery.language.checks.findings import Subject
from ckpt_surgery.language.checks.rules import RuleCheck, expression_findings
from ckpt_surgery.language.expressions.naming import MEANINGS
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.schema.fields import Pass, Recipe


def found(rule: dict[str, Any], mirror: dict[str, list[str]] | None = None) -> list[tuple[Any, str, bool]]:
    written = {"version": 1, "sources": ["a", "b"], "params": {"p": 1}, "rules": [rule]}
    recipe = Recipe.model_validate(written)
    pass_ = Pass.model_validate({"rules": [rule], "mirror": mirror or {}})
    check = RuleCheck(Subject(recipe, written, frozenset()), pass_, ("r",), pass_.rules[0], rule)
    return [(f.path[1:], f.message, f.at_key) for f in check.findings()]


@pytest.mark.parametrize(
    "rule",
    [
        {"match": "(?P<n>.*)", "to": "a/${n}", "value": "x * p"},
        {"match": "a/(.)", "to": "b", "by": "int(g[1])", "value": "stack(xs)"},
        {"match": "a", "for": {"i": "range(x.ndim)"}, "to": {"b/${i}": "x[i]"}},
        {"match": "a", "source": "*", "value": "mean(xs)"},
        {"match": "a", "to": "b", "let": {"s": "stack(xs)", "t": "s.T"}, "by": "key", "value": "t"},
        {"match": "(?P<n>.*)", "for": {"i": "range(p)"}, "to": {"${n}${i}": "t"}, "let": {"t": "x[i]"}},
        {"fill": "a", "fallback": "missing", "let": {"t": "x.T"}, "value": "t"},
        {"add": "a", "let": {"n": "len(key)"}, "value": "n"},
        {"match": "a", "drop": True, "when": "key != 'b'", "optional": True},
        {"fill": "(?P<n>.*)", "from": "${n}", "source": "b"},
        {"fill": "a", "fallback": True},
        {"add": "a/${i}", "for": {"i": "range(p)"}, "value": "zeros(i, 'int8')"},
    ],
)
def test_rules_without_problems(rule: dict[str, Any]) -> None:
    assert found(rule) == []


@pytest.mark.parametrize(
    ("rule", "path", "message", "at_key"),
    [
        ({"to": "a"}, (), "a rule has one of `match`, `fill` and `add`; this one has none", False),
        (
            {"match": "a", "add": "b", "value": "1"},
            (),
            "a rule has one of `match`, `fill` and `add`; this one has `match` and `add`",
            False,
        ),
        ({"match": "a", "from": "b"}, ("from",), "`from` goes with `fill`, not with `match`", True),
        (
            {"match": "a", "drop": True, "to": "b"},
            ("to",),
            "`to` does not go with `drop: true`: a dropped leaf has neither name nor value",
            True,
        ),
        (
            {"fill": "a", "fallback": True, "value": "x"},
            ("value",),
            "`value` does not go with `fallback: true`: the target's own value is used unchanged",
            True,
        ),
        (
            {"match": "a", "drop": True, "let": {"t": "x"}},
            ("let",),
            "`let` does not go with `drop: true`: a dropped leaf has neither name nor value",
            True,
        ),
        (
            {"fill": "a", "fallback": True, "let": {"t": "x"}},
            ("let",),
            "`let` does not go with `fallback: true`: the target's own value is used unchanged",
            True,
        ),
        ({"match": "a", "let": {}}, ("let",), "`let` is an empty mapping", True),
        ({"match": "a", "let": {"t": "x + no"}, "value": "t"}, ("let", "t"), "unknown name `no`", False),
        (
            {"match": "a", "let": {"t": "u", "u": "x"}, "value": "t"},
            ("let", "t"),
            "`u` is not known yet: an entry of `let` sees those before it",
            False,
        ),
        ({"match": "a", "let": {"t": "xs"}, "value": "t"}, ("let", "t"), MEANINGS["xs"], False),
        ({"add": "a"}, (), "an `add` rule needs a `value`, because it claims no leaf that has one", False),
        (
            {"match": "a", "to": {"b": "x"}, "value": "x"},
            ("value",),
            "`value` does not go with a mapping in `to`, which has an expression for each output",
            True,
        ),
        ({"match": "a", "for": {}}, ("for",), "`for` is an empty mapping", True),
        (
            {"match": "a", "mirror_value": "x"},
            ("mirror_value",),
            "`mirror_value` needs a `mirror` on the pass",
            True,
        ),
        (
            {"match": "a", "by": "1"},
            ("by",),
            "`by` orders leaves that share one `to`; there is no `to`",
            True,
        ),
        (
            {"match": "a", "to": "b", "by": "1"},
            ("by",),
            "`by` orders `xs`, which no value of the rule uses",
            True,
        ),
        ({"match": "a", "source": "c"}, ("source",), "unknown source `c`", False),
        ({"match": "a", "source": ["a", "c"]}, ("source", 1), "unknown source `c`", False),
        ({"match": "a", "source": []}, ("source",), "the list of sources is empty", False),
        (
            {"match": "(?P<p>.)"},
            ("match",),
            "the group `p` is already a param; choose another name",
            False,
        ),
        (
            {"match": "a", "to": "${x}", "for": {"x": "range(2)"}},
            ("for", "x"),
            "`x` has a meaning of its own in recipes; choose another name",
            True,
        ),
        ({"match": "a", "to": r"\1"}, ("to",), "the regular expression has no group 1", False),
        ({"match": "a", "to": {"${n}": "x"}}, ("to", "${n}"), "unknown name `n`", True),
    ],
)
def test_problems(rule: dict[str, Any], path: tuple[Any, ...], message: str, at_key: bool) -> None:
    assert found(rule) == [(path, message, at_key)]


@pytest.mark.parametrize(
    ("rule", "field", "name"),
    [
        ({"match": "a", "value": "xs"}, "value", "xs"),
        ({"match": "a", "to": "b", "when": "len(xs) > 1"}, "when", "xs"),
        ({"add": "a", "value": "x"}, "value", "x"),
        ({"add": "a/${key}", "value": "1"}, "add", "key"),
        ({"fill": "a", "from": "${x}"}, "from", "x"),
    ],
)
def test_names_are_used_where_they_have_a_value(rule: dict[str, Any], field: str, name: str) -> None:
    ((path, message, _),) = found(rule)
    assert path == (field,)
    assert message.startswith(f"`{name}` ")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("p", "`p` is already a param"),
        ("a", "`a` is already a source"),
        ("n", "`n` is already a named group"),
        ("i", "`i` is already a variable of `for`"),
        ("mean", "`mean` is a function"),
        ("key", "`key` has a meaning of its own in recipes"),
        ("not", "`not` is not a valid name; use letters, digits and `_`, and no Python keyword"),
    ],
)
def test_names_of_let_are_new(name: str, problem: str) -> None:
    rule = {"match": "(?P<n>.)", "for": {"i": "range(2)"}, "to": "${i}", "let": {name: "x"}}
    ((path, message, at_key),) = found(rule)
    assert (path, message.removesuffix("; choose another name"), at_key) == (("let", name), problem, True)


@pytest.mark.parametrize(
    "rule",
    [
        {"match": "a", "when": "t"},
        {"match": "a", "to": "${t}"},
        {"match": "a", "to": {"${t}": "x"}},
        {"match": "a", "to": "b", "by": "t", "value": "xs"},
        {"match": "a", "to": "b", "for": {"i": "t"}},
        {"fill": "a", "from": "${t}"},
        {"add": "${t}", "value": "1"},
    ],
)
def test_only_values_see_names_of_let(rule: dict[str, Any]) -> None:
    ((_, message, _),) = found({**rule, "let": {"t": "1"}})
    assert message.startswith("unknown name `t`")


def test_entries_of_let_are_no_longer_than_a_value() -> None:
    rule = {"match": "a", "let": {"t": "'" + "y" * 20_000 + "'", "u": "'" + "y" * 12_764 + "'"}}
    assert found(rule) == []
    rule["let"] |= {"v": "1"}
    message = "entries of 32,769 characters together; the limit is 32,768"
    assert found(rule) == [(("let",), message, True)]


def test_entries_of_let_are_no_deeper_than_the_stack() -> None:
    def rule(levels: int) -> dict[str, Any]:
        deep = {f"t{i}": "-" * 31 + (f"t{i - 1}" if i else "x") for i in range(levels)}
        return {"match": "a", "let": deep, "value": f"t{levels - 1}"}

    assert found(rule(3)) == []
    message = "nested deeper than 96 levels, with the entries that it uses"
    assert found(rule(5)) == [(("let", "t3"), message, False)]


def test_value_and_mirror_value_are_of_one_kind() -> None:
    rule = {"match": "a", "to": "b", "value": "stack(xs)", "mirror_value": "x"}
    assert found(rule, {"a": ["b"]}) == [
        (("mirror_value",), "`value` and `mirror_value` must both use `x`, or both use `xs`", False)
    ]


@pytest.mark.parametrize("name", ["source", "source_2", "src"])
@pytest.mark.parametrize("field", ["value", "when", "to"])
def test_sources_that_have_names_are_listed(name: str, field: str) -> None:
    text = f"{name}['w']" if field != "to" else f"${{{name}['w']}}"
    ((_, message, _),) = found({"match": "w", field: text})
    assert message == f"unknown name `{name}`; the sources are called `a`, `b`"


# --- single expressions --------------------------------------------------------------------------------

PATTERN = regex.compile("(?P<n>.)(.)")


def text_problems(text: str, *known: str) -> list[tuple[str, int | None, int | None]]:
    findings = list(expression_findings(("value",), parse(text), frozenset(known), PATTERN))
    assert all(finding.path == ("value",) for finding in findings)
    return [(finding.message, finding.start, finding.end) for finding in findings]


def test_known_names_are_fine() -> None:
    assert text_problems("x + n", "x", "n") == []
    assert text_problems("g[2] + g['n']", "g") == []


def test_unknown_names_and_groups() -> None:
    assert text_problems("1 + zz", "n") == [("unknown name `zz`", 4, 6)]
    assert text_problems("g[3]", "g") == [("the regular expression has no group 3", 0, 4)]


def test_a_name_of_elsewhere_says_where_it_belongs() -> None:
    assert text_problems("2 * x", "n") == [(MEANINGS["x"], 4, 5)]
    assert text_problems("g[3]") == [(MEANINGS["g"], 0, 1)]


def test_a_pattern_that_is_written_out_is_compiled() -> None:
    ((message, start, end),) = text_problems("1 + count('(')")
    assert message.startswith("not a regular expression")
    assert (start, end) == (4, 14)
    assert text_problems("count('a|b')") == []


@pytest.mark.parametrize(
    ("template", "name", "start"),
    [("ex/${x}", "x", 5), ("g/${i}_${g[1]}", "g", 9), ("a/${str(xs)}", "xs", 8)],
)
def test_a_name_of_elsewhere_in_a_template_is_pointed_at(template: str, name: str, start: int) -> None:
    rule = {"add": template, "value": "zeros([2], 'float32')", "for": {"i": "range(2)"}}
    written = {"version": 1, "rules": [rule]}
    recipe = Recipe.model_validate(written)
    check = RuleCheck(
        Subject(recipe, written, frozenset()), recipe.passes[0], (), recipe.passes[0].rules[0], rule
    )
    assert [(f.message, f.start, f.end) for f in check.findings()] == [
        (MEANINGS[name], start, start + len(name))
    ]
