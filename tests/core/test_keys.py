"""Key paths: what makes two of them equal, and the order in which people number layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.keys import Key, natural_order, parts_of, text_of


def test_a_key_is_parsed_from_its_text() -> None:
    key = Key.parse("params/layers_0/0")
    assert key == Key(("params", "layers_0", "0"), (False, False, False))
    assert (key.text, str(key)) == ("params/layers_0/0", "params/layers_0/0")
    texts = ["", "a", "/", "a//b", "/a/", ".", "a b"]
    assert [Key.parse(text).text for text in texts] == texts


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_components_are_kept_as_they_are(names: list[str]) -> None:
    key = Key.of(names)
    assert key.names == tuple(names)
    assert key.text == "/".join(names)
    assert not any(key.sequences)


@pytest.mark.parametrize(
    ("names", "printed"),
    [
        (["a", "b"], "a/b"),
        (["a/b"], r"a\/b"),
        (["a", "b/c/", "d"], r"a/b\/c\//d"),
        (["/", ""], r"\//"),
        ([], ""),
    ],
)
def test_a_slash_in_a_component_is_escaped_where_keys_are_printed(names: list[str], printed: str) -> None:
    key = Key.of(names)
    assert (key.printed, text_of(printed)) == (printed, key.text)
    assert [text_of(part) for part in parts_of(printed)] == (names or [""])


def test_keys_of_one_text_differ_by_their_components_and_the_kinds_of_these() -> None:
    index, name = Key(("a", "0"), (False, True)), Key(("a", "0"), (False, False))
    assert index.text == name.text
    assert index != name
    assert len({index, name, Key.parse("a/0")}) == 2

    within, between = Key.of(["a/b"]), Key.of(["a", "b"])
    assert within.text == between.text
    assert within != between


def test_layers_are_ordered_by_their_numbers() -> None:
    keys = ["layer_10/b", "layer_2/b", "layer_2/a", "layer_", "layer_02/a", "other", "10", "9"]
    assert sorted(keys, key=natural_order) == [
        *("9", "10", "layer_", "layer_02/a", "layer_2/a", "layer_2/b", "layer_10/b", "other")
    ]


@given(st.lists(st.text("ab01_/\u0663", max_size=8), unique=True, max_size=8))
def test_any_texts_have_an_order_and_no_two_the_same_place(texts: list[str]) -> None:
    places = [natural_order(text) for text in texts]
    assert len(set(places)) == len(texts)
    assert sorted(sorted(places), reverse=True) == sorted(places, reverse=True)
