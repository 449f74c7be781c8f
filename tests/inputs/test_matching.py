"""Which leaves are meant."""

import pytest

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.inputs.matching import matching
from ckpt_surgery.language.expressions import regexes as patterns
from tests.support.leaves import array_leaf


def test_an_expression_that_takes_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    with pytest.raises(RecipeError, match=r"took more than 0\.05 s"):
        matching({"a" * 40: array_leaf("x")}, "(a|aa)+b")
