"""What several formats cannot hold, in the same words."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.formats.known import formats
from ckpt_surgery.formats.opening import encoder
from ckpt_surgery.formats.plain_files import dtype_problem, metadata_json
from ckpt_surgery.formats.registry import SinkOptions

WRITABLE = [name for name, known in formats().items() if known.writable]


def array(text: str, dtype: object = np.float32) -> Leaf:
    return Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec((2,), np.dtype(dtype)))  # type: ignore[call-overload]


KEY = Leaf(Key.parse("key"), LeafKind.PRNG_KEY, ArraySpec((2,), np.dtype(np.uint32)), prng_impl="rbg")
TEXT = Leaf(Key.parse("text"), LeafKind.STRING, string="half\ud800")


def sentences(leaf: Leaf) -> dict[str, list[str]]:
    """What the encoder of each format says about a checkpoint that has one leaf."""
    return {name: encoder(name, SinkOptions()).unsupported([leaf]) for name in WRITABLE}


def test_leaves_are_refused_in_the_same_words() -> None:
    kinds = sentences(KEY)
    assert kinds.pop("orbax") == []
    for (sentence,) in kinds.values():
        assert sentence.startswith("`key` is a PRNG key, whose type would be lost; ")
        assert sentence.endswith(" only; drop it.")
    for (sentence,) in sentences(array("x", "U5")).values():
        assert sentence.startswith("`x` is str160, which ")
        assert sentence.endswith("; drop it.")
    texts = sentences(TEXT)
    same = ["`text` is a string that is not valid Unicode, so it cannot be stored as UTF-8; drop it."]
    assert (texts["npz"], texts["flax"]) == (same, same)
    assert texts["zarr"] == ["`text` is a string; zarr groups hold plain arrays only; drop it."]
    assert {sentence for (sentence,) in sentences(array("a\ud800")).values()} == {
        "`a\\ud800` is not valid Unicode, so it cannot be stored as UTF-8; rename it."
    }


def test_names_that_occur_twice_are_refused_in_the_same_words() -> None:
    twice = [array("a"), array("b"), array("a")]
    for name in WRITABLE:
        told = encoder(name, SinkOptions()).unsupported(twice)
        if name == "orbax":  # where different keys can share an array, so it names both
            assert told == ["`a` and `a` would share the stored array `a`; rename one of them."]
        else:
            assert told == ["2 leaves would have the name `a`; rename all but one."]


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [("float16", "cast it to another type"), ("U3", "drop it"), ("M8[s]", "drop it"), ("V4", "drop it")],
)
def test_a_cast_is_advised_for_numbers_only(dtype: str, remedy: str) -> None:
    kind = np.dtype(dtype)
    assert dtype_problem(kind, "X cannot store") == f"is {kind.name}, which X cannot store; {remedy}."


def test_metadata_is_json() -> None:
    assert metadata_json({"a": [1, None], "b": "é"}) == '{"a":[1,null],"b":"\\u00e9"}'
    for wrong in ({"a": object()}, {(1, 2): 3}):
        with pytest.raises(UsageError, match="metadata cannot be stored as JSON"):
            metadata_json(wrong)  # type: ignore[arg-type]
    for name in WRITABLE:
        if formats()[name].holds_metadata:
            with pytest.raises(UsageError, match="metadata cannot be stored"):
                encoder(name, SinkOptions({"a": object()}))
