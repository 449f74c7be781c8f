"""Which paths are sources."""

import pytest

from ckpt_surgery.cli.parameters.paths import missing_destination, split_paths
from ckpt_surgery.core.errors import UsageError


@pytest.mark.parametrize(
    ("names", "paths", "expected"),
    [
        (["source"], ["a"], (("a",), None)),
        (["source"], ["a", "b"], (("a",), "b")),
        (["base", "lora"], ["a", "b"], (("a", "b"), None)),
        (["base", "lora"], ["a", "b", "c"], (("a", "b"), "c")),
        (["base", "*"], ["a", "b"], (("a",), "b")),
        (["base", "*"], ["a", "b", "c"], (("a", "b"), "c")),
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
        (
            ["base", "lora", "*"],
            ["a"],
            "the recipe takes 2 sources or more (base, lora, …) and one destination; 1 path given",
        ),
    ],
)
def test_a_wrong_number_of_paths(names, paths, message):
    with pytest.raises(UsageError) as caught:
        split_paths(names, paths)
    assert caught.value.problems[0].message == message


def test_a_recipe_beside_rules_is_no_source():
    for recipe, hinted in (("@drop-optimizer", True), ("r.yaml", True), ("old", False)):
        with pytest.raises(UsageError) as caught:
            split_paths(["source"], [recipe, "old", "new"])
        assert ("With `-e` there is no RECIPE" in str(caught.value)) is hinted


def test_a_missing_destination_names_the_sources():
    assert missing_destination(["source"]).problems[0].message == "DST is missing"
    assert missing_destination(["base", "lora"]).problems[0].message == (
        "DST is missing: the paths are those of the 2 sources (base, lora)"
    )
