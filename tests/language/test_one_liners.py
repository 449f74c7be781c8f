"""Rules that are given without a file."""

import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.one_liners import document_of


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (r"s|params/old/(.*)|params/new/\1|", {"match": "params/old/(.*)", "to": r"params/new/\1"}),
        (r"s,(a|b)/x,${g[1]},", {"match": "(a|b)/x", "to": "${g[1]}"}),
        (r"s/a\/(\w+)/\1/", {"match": r"a/(\w+)", "to": r"\1"}),
        (r"s|a\||b|", {"match": "a|", "to": "b"}),
        ("drop:opt_state/.*", {"match": "opt_state/.*", "drop": True}),
        ("drop:x = 1", {"match": "x = 1", "drop": True}),
        ("step = 0", {"match": "step", "value": "0"}),
        ("s = 0", {"match": "s", "value": "0"}),
        ("s/x = y == 1", {"match": "s/x", "value": "y == 1"}),
        ("a.b/c[0] = cast(x, dtype='f4')", {"match": r"a\.b/c\[0\]", "value": "cast(x, dtype='f4')"}),
        ("  w  =  x * 2 ", {"match": "w", "value": "x * 2"}),
        ("add:a/${n} = zeros((2,), 'f4')", {"add": "a/${n}", "value": "zeros((2,), 'f4')"}),
    ],
)
def test_what_is_a_rule(text: str, rule: dict) -> None:
    assert document_of([text]) == {"version": 1, "rules": [rule]}


def test_rules_keep_their_order() -> None:
    assert document_of(["drop:b", "drop:a"])["rules"] == [
        {"match": "b", "drop": True},
        {"match": "a", "drop": True},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`-e ` is no rule"),
        ("step", "`-e step` is no rule"),
        ("step == 0", "is no rule"),
        ("step=0", "is no rule"),
        ("= 0", "is no rule"),
        ("add: = 0", "is no rule"),
        ("s|a|b", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s|(a|b)|c|", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s|a|b|g", "is not of the form `s|REGEX|TEMPLATE|`"),
        ("s||b|", "the regular expression is empty"),
        ("s|a||", "the template is empty"),
        ("drop:", "the regular expression is empty"),
        ("x\x1b = ", r"`-e x\\x1b = ` is no rule"),
    ],
)
def test_what_is_none(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        document_of([text])
    assert message.replace("\\\\", "\\") in str(caught.value)
    assert "`s" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("s|a|b", "The sign `|` stands before, between and after the two, so also at the end."),
        ("s|a|b|g", "Nothing can follow the last `|`: leave out `g`."),
        (
            "s/a/b/c/",
            "It has the sign `/` 4 times instead of 3. Where `/` is part of the regular expression take "
            "another sign: `s|REGEX|TEMPLATE|`.",
        ),
    ],
)
def test_what_a_substitution_lacks(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        document_of([text])
    assert caught.value.problems[0].hint == hint


def test_blanks_around_the_sign() -> None:
    with pytest.raises(UsageError, match="The sign = stands between blanks"):
        document_of(["step=0"])
