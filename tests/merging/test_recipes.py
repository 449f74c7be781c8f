"""Families have all names that they are made of, each once, and no others."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.merging.recipes import Family, families

LLAMA = [f"model.layers.{i}.{name}.weight" for i in range(12) for name in ("mlp.up", "attn.q")]
EXPERTS = [f"layers.{i}.experts.{j}.w{k}.weight" for i in range(3) for j in range(8) for k in (1, 2)]


def names_of(family: Family) -> list[str]:
    """The names of a family, from its parts."""
    return [
        "".join(text + str(number) for text, number in zip(family.texts, numbers, strict=True)) + tail
        for numbers in itertools.product(*family.ranges)
        for tail in family.tails
    ]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["model.norm.weight", "lm_head.weight"], 1),
        (LLAMA, 1),
        (EXPERTS, 1),
        ([*LLAMA, "model.layers.0.extra"], 2),
        ([name for name in LLAMA if ".5." not in name], 2),  # a gap
        ([f"a.{i}.b.{j}.c" for i, j in ((0, 0), (0, 1), (1, 0))], 2),  # no product
        ([f"1.{i}$.x" for i in range(3)], 1),  # the text before a number is no plain text
    ],
)
def test_names_are_few_families(names: list[str], count: int) -> None:
    found = list(families(names))
    assert len(found) == count
    assert sorted(name for family in found for name in names_of(family)) == sorted(names)


NUMBERS = ("", ".0", ".1", ".2", ".3")
NAMES = [f"{a}{i}.{x}{j}.z" for a in "ab" for i in NUMBERS for x in "xy" for j in NUMBERS]


@given(st.sets(st.sampled_from(NAMES)))
def test_families_are_a_partition(names: set[str]) -> None:
    found = [name for family in families(sorted(names)) for name in names_of(family)]
    assert sorted(found) == sorted(names)


def test_a_family_is_a_template_and_an_expression() -> None:
    (family,) = families(["h.3.a", "h.4.a", "h.3.b.0.c", "h.4.b.0.c"][:2])
    assert family.template == "h.${i}${tail}"
    assert family.expression(0) == "f'h.{i}{tail}'"
    assert family.expression(2) == "f'h.{i + 2}{tail}'"
    assert family.expression(-3) == "f'h.{i - 3}{tail}'"
    assert family.variables("tails['t0']") == {"i": "range(3, 5)", "tail": "tails['t0']"}


def test_a_single_number_is_written_out() -> None:
    (family,) = families(["h.3.b.0.c", "h.3.b.1.c"])
    assert (family.template, family.expression(-1)) == ("h.3.b.${j}${tail}", "f'h.2.b.{j}{tail}'")
