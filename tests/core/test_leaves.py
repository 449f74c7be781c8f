"""Leaves: what they take in memory, and what they are called in documents."""

import pytest

from ckpt_surgery.core.leaves import LeafKind
from tests.support.leaves import leaf


@pytest.mark.parametrize(
    ("described", "nbytes"),
    [
        ("float32[2,3]", 24),
        ("bfloat16[5]", 10),
        ("float32[0,3]", 0),
        ("scalar:int64", 8),
        ("prng_key", 8),
        ("string", 0),
        ("empty", 0),
    ],
)
def test_bytes_in_memory(described: str, nbytes: int) -> None:
    assert leaf("a", described).nbytes == nbytes


def test_kinds_have_the_names_that_json_documents_hold() -> None:
    assert [str(kind) for kind in LeafKind] == ["array", "scalar", "string", "prng_key", "empty", "object"]
    assert LeafKind("prng_key") is LeafKind.PRNG_KEY


def test_leaves_are_equal_by_value() -> None:
    assert leaf("a") == leaf("a")
    assert leaf("a") != leaf("b")
    assert leaf("a") != leaf("a", "float16[2,3]")
