"""Rules that are given without a file."""

import pytest

from ckpt_surgery.core.errors import Code, PlanError, SurgeryError, UsageError
from ckpt_surgery.inputs.matching import recipe_of_rules
from ckpt_surgery.language.written import document_of, inside_keys, selection_of
from tests.support.plans import plan_of


def test_what_is_a_rule() -> None:
    for text, rule in (
        (r"s|params/old/(.*)|params/new/\1|", {"match": "params/old/(.*)", "to": r"params/new/\1"}),
        (r"s,(a|b)/x,${g[1]},", {"match": "(a|b)/x", "to": "${g[1]}"}),
        (r"s/a\/(\w+)/\1/", {"match": r"a/(\w+)", "to": r"\1"}),
        (r"s|a\||b|", {"match": "a|", "to": "b"}),
        ("s/block/layers/g", {"match": ".*block.*", "to": "${sub(key, 'block', 'layers')}"}),
        (r"s|^a\.||g", {"match": r".*(?:^a\.).*", "to": r"${sub(key, '^a\\.', '')}"}),
        ("s|a|b| = x.T", {"match": "a", "to": "b", "value": "x.T"}),
        ("s|a|b| = 'c | d'", {"match": "a", "to": "b", "value": "'c | d'"}),
        ("s|a(?=b)|c| = x == 1", {"match": "a(?=b)", "to": "c", "value": "x == 1"}),
        ("s=a=b= = x", {"match": "a", "to": "b", "value": "x"}),
        ("s/a/b/g = x", {"match": ".*a.*", "to": "${sub(key, 'a', 'b')}", "value": "x"}),
        (
            "s|a|h.${i}| = x[i] for i in range(x.shape[0])",
            {"match": "a", "to": "h.${i}", "for": {"i": "range(x.shape[0])"}, "value": "x[i]"},
        ),
        ("s|a|b| = f('x for i in range(2)')", {"match": "a", "to": "b", "value": "f('x for i in range(2)')"}),
        ("drop:opt_state/.*", {"match": "opt_state/.*", "drop": True}),
        ("drop:x = 1", {"match": "x = 1", "drop": True}),
        ("step = 0", {"match": "step", "value": "0"}),
        ("s = 0", {"match": "s", "value": "0"}),
        ("s/x = y == 1", {"match": "s/x", "value": "y == 1"}),
        ("s/a/b = x / 2 / 3", {"match": "s/a/b", "value": "x / 2 / 3"}),
        ("s/a/b/c = x", {"match": "s/a/b/c", "value": "x"}),
        ("a.b/c[0] = cast(x, dtype='f4')", {"match": r"a\.b/c\[0\]", "value": "cast(x, dtype='f4')"}),
        ("  w  =  x * 2 ", {"match": "w", "value": "x * 2"}),
        ("add:a/${n} = zeros((2,), 'f4')", {"add": "a/${n}", "value": "zeros((2,), 'f4')"}),
    ):
        assert document_of([text]) == {"version": 1, "rules": [rule]}


def test_a_rule_that_keeps_comes_last_and_drops_the_rest() -> None:
    assert document_of(["keep:a", "drop:b"]) == {
        "version": 1,
        "unmatched": "drop",
        "rules": [{"match": "b", "drop": True}, {"match": "a"}],
    }
    # A rename may claim all its leaves.
    assert document_of(["keep:a", "s|a|b|"])["rules"][1] == {"match": "a", "optional": True}


def test_a_choice_of_keys_is_a_pass_for_each_condition() -> None:
    assert selection_of(".*/w", "a.b/") == {
        "version": 1,
        "passes": [
            {"unmatched": "drop", "rules": [{"match": r"a\.b(?:/.*)?"}]},
            {"unmatched": "drop", "rules": [{"match": ".*/w"}]},
        ],
    }


def test_what_is_none() -> None:
    for text, message in (
        ("", "not a rule: `-e `"),
        ("step", "not a rule: `-e step`"),
        ("step=0", "The sign = stands between blanks"),
        ("= 0", "not a rule"),
        ("s|a|b", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s|(a|b)|c|", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s|a|b|=x", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s|a|b| =", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s||b|", "the regular expression is empty"),
        ("s|a||", "the template is empty"),
        ("x\x1b = ", r"not a rule: `-e x\\x1b = `"),
        ("drop:", "the regular expression is empty"),
    ):
        with pytest.raises(UsageError) as caught:
            document_of([text])
        assert message.replace("\\\\", "\\") in str(caught.value)
        assert "`s" in str(caught.value)


def test_what_a_substitution_lacks() -> None:
    for text, hint in (
        ("s|a|b", "The sign `|` stands before, between and after the two."),
        ("s|a|b|gi", "Behind the last one only `g` and ` = EXPRESSION` can follow."),
        ("s|a|b|= x", "` = EXPRESSION` can follow. The sign = stands between blanks."),
        ("s/a/b/c/", "Take another sign where `/` is part of the two."),
    ):
        with pytest.raises(UsageError) as caught:
            document_of([text])
        assert hint in (caught.value.problems[0].hint or "")


def test_a_g_replaces_every_match_inside_keys() -> None:
    for rule, keys in (
        ("s/block/layers/g", ["layers/0/layers", "layers/1/w", "emb"]),
        (r"s|/|.|g", ["block.0.block", "block.1.w", "emb"]),
        (r"s|^block/||g", ["0/block", "1/w", "emb"]),
        (r"s|block/(\d)$|w|g", None),
        (r"s|(\d)/|_\1/x/|g", ["block/_0/x/block", "block/_1/x/w", "emb"]),
        (r"s|(?P<n>\d)|\g<n>\g<n>|g", ["block/00/block", "block/11/w", "emb"]),
        (r"s|(?:0\|emb)|z|g", ["block/z/block", "block/1/w", "z"]),
        (r"s,[oc]{1\,2},'_,g", ["bl'_k/0/bl'_k", "bl'_k/1/w", "emb"]),
    ):
        source = {"block/0/block": "int8[2]", "block/1/w": "int8[2]", "emb": "int8[2]"}
        text = recipe_of_rules([rule])
        if keys is None:
            with pytest.raises(PlanError, match="claims nothing"):
                plan_of(text, source)
        else:
            assert {step.leaf.key.text for step in plan_of(text, source).steps} == set(keys)


def test_a_wrong_expression_behind_a_substitution_has_its_place() -> None:
    with pytest.raises(SurgeryError) as caught:
        plan_of(recipe_of_rules(["s|a|b| = x +"]), {"a": "int8[2]"})
    problem = caught.value.problems[0]
    assert problem.code is Code.EXPRESSION
    assert problem.place is not None
    assert (problem.place.path, problem.place.text) == (
        "rules[0].value",
        "  - {match: a, to: b, value: x +}",
    )


@pytest.mark.parametrize("replacement", ["${n}", "&", r"\2", r"\g<n>", r"\q"])
def test_what_means_nothing_inside_keys_is_refused(replacement: str) -> None:
    with pytest.raises(SurgeryError) as caught:
        plan_of(recipe_of_rules([f"s|b|{replacement}|g"]), {"b": "int8[2]"})
    assert caught.value.problems[0].code is not Code.INTERNAL


def test_the_same_rule_inside_keys() -> None:
    for rule, inside in (
        ("s/block/layers/", "s/block/layers/g"),
        ("s/block/layers/ = x.T", "s/block/layers/g = x.T"),
        ("s|a|${n}|", None),
        ("s/block/layers/g", None),
        ("a = 1", None),
    ):
        assert inside_keys(rule) == inside
