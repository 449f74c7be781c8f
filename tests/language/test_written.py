"""Recipes that are given as data become texts, which are parsed like those of files."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.history import IN_MEMORY
from ckpt_surgery.language.written import is_text, text_of
from ckpt_surgery.language.yaml.parsing import parse_document

NAMES = st.text("abc/$é\"\\' {}#:\n", max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6, width=32) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def test_a_text_has_more_than_one_line() -> None:
    assert is_text("version: 1\n")
    assert not is_text("recipes/a.yaml")


@given(st.dictionaries(NAMES | st.integers(0, 99), VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read(document: dict[str | int, Any]) -> None:
    found = parse_document(text_of(document), IN_MEMORY)
    assert list(found.problems) == []
    assert found.value == document


def test_values_that_no_recipe_has() -> None:
    for document, message in (
        ({"rules": [{"value": np.ones(2)}]}, "the recipe's `rules[0].value` is "),
        ({"rules": [{"when": b"x"}]}, "of type bytes, which no recipe can hold"),
        ({"tables": {1.5: "a"}}, "the recipe has the key 1.5 in `tables`: keys are texts or integers"),
        ({True: 1}, "the recipe has the key True: keys are texts or integers"),
    ):
        with pytest.raises(UsageError) as caught:
            text_of(document)
        assert message in str(caught.value)
