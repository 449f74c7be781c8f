"""Values of options, and which argument is what."""

import pytest

from ckpt_surgery.cli.options import split_paths
from ckpt_surgery.core.errors import UsageError


@pytest.mark.parametrize(
    ("names", "paths", "expected"),
    [
        (["source"], ["a"], (("a",), None)),
        (["source"], ["a", "b"], (("a",), "b")),
        (["base", "lora"], ["a", "b"], (("a", "b"), None)),
        (["base", "lora"], ["a", "b", "c"], (("a", "b"), "c")),
    ],
)
def test_split_paths(names, paths, expected):
    assert split_paths(names, paths) == expected


@pytest.mark.parametrize(
    ("names", "paths", "message"),
    [
        (["base", "lora", "x"], ["a"], "the recipe takes 3 sources (base, lora, x); missing: lora, x"),
        (
            ["source"],
            ["a", "b", "c\n", "d"],
            "the recipe takes 1 source (source) and one destination; too many: c\\n, d",
        ),
    ],
)
def test_a_wrong_number_of_paths(names, paths, message):
    with pytest.raises(UsageError) as caught:
        split_paths(names, paths)
    assert caught.value.problems[0].message == message
