"""Sizes and values of params, in every way that they may be written."""

import re

import pytest

from ckpt_surgery.core.arguments import assignments_of, bytes_of, parse_size
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.loading import parse_recipe


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


def test_sizes_of_callers():
    assert [bytes_of("memory", size) for size in (None, 4096, "1GiB")] == [None, 4096, 1 << 30]


@pytest.mark.parametrize("size", [0, -1, True, "much", ""])
def test_what_callers_may_not_say(size):
    with pytest.raises(UsageError, match=r"^`memory`: `.*` is"):
        bytes_of("memory", size)


PARAMS = "{n: 1, rate: 0.5, tied: false, name: a, parts: [1, 2], words: [a]}"
VALUES = {
    "n": -4,
    "rate": 1e-05,
    "tied": True,
    "name": "true",
    "parts": (3, 4),
    "words": ["x: y", "\N{SNOWMAN}", "\N{GRINNING FACE}", '"'],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_params_arrive_as_they_are(name):
    recipe = parse_recipe(f"version: 1\nparams: {PARAMS}\n", "r.yaml", assignments_of({name: VALUES[name]}))
    assert recipe.params[name] == (tuple(VALUES[name]) if isinstance(VALUES[name], list) else VALUES[name])


WANTED = "text, a finite number, true or false, or a list of those"


def test_texts_stay_texts():
    assert assignments_of(["n=1", "m=x=y"]) == ("n=1", "m=x=y")
    assert assignments_of("n=1") == ("n=1",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["n=1", "m=2", "n=3"], "the param `n` is given more than once"),
        ({"n": None}, f"the param `n` should be {WANTED}, not None"),
        ({"n": {"m": 1}}, f"the param `n` should be {WANTED}, not {{'m': 1}}"),
        ({"n": [[1]]}, f"the param `n` should be {WANTED}, not [[1]]"),
        ({"n": float("nan")}, f"the param `n` should be {WANTED}, not nan"),
        ({"n=1": 2}, "'n=1' is not the name of a param"),
        ({1: 2}, "1 is not the name of a param"),
    ],
)
def test_what_is_no_value_of_a_param(given, message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        assignments_of(given)
