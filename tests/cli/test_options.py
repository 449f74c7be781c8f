"""Values of options, and which argument is what."""

import pytest

from ckpt_surgery.cli.options import parse_size, split_paths
from ckpt_surgery.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1 << 20),
        ("512B", 512),
        ("2GiB", 2 << 30),
        ("2gib", 2 << 30),
        ("2G", 2 << 30),
        ("2GB", 2_000_000_000),
        ("1.5MiB", 3 << 19),
        (" 4 KiB ", 4096),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "1e9", "2Gi", "2iB", "2 G i B", "2PB", "0", "0.1B", "1,5GiB"]
)
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match=r"is not a size|less than one byte"):
        parse_size(text)


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
