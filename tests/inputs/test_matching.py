"""Which leaves are meant."""

import pytest

from ckpt_surgery.core.errors import RecipeError, UsageError
from ckpt_surgery.inputs.matching import check_matched, matching
from ckpt_surgery.language.expressions import regexes as patterns
from tests.support.leaves import array_leaf

LEAVES = {key: array_leaf(key) for key in ("params", "params/a/w", "params/ab/w", "step")}


def test_an_expression_that_takes_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    with pytest.raises(RecipeError, match=r"took more than 0\.05 s"):
        matching({"a" * 40: array_leaf("x")}, "(a|aa)+b")


@pytest.mark.parametrize(
    ("match", "hint"),
    [
        ("par", "as in recipes; `.*par.*` matches 3."),
        ("a|b", "as in recipes; `.*(?:a|b).*` matches 3."),
        ("x", "as in recipes."),
    ],
)
def test_an_expression_that_matches_no_key(match, hint):
    with pytest.raises(UsageError, match=r"matches none of 4 keys") as raised:
        check_matched(match, 0, LEAVES)
    assert str(raised.value).endswith(hint)
