"""Choosing a step and an item: which one is meant, and what there is to choose from."""

from collections.abc import Mapping

import pytest

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.formats.shared.steps import check_no_choice, choose_item, choose_step, quoted

STEPS: Mapping[str, int | float] = {"ckpt_2": 2, "ckpt_10": 10, "ckpt_9": 9}


@pytest.mark.parametrize(
    ("wanted", "finished", "name"),
    [
        (None, None, "ckpt_10"),  # the latest by number, not by name
        (9, None, "ckpt_9"),
        (None, ["ckpt_2", "ckpt_9"], "ckpt_9"),  # the latest that was finished
        (10, ["ckpt_2"], "ckpt_10"),  # a step that is asked for need not be: the format says why not
    ],
)
def test_a_step(wanted: int | None, finished: list[str] | None, name: str) -> None:
    assert choose_step("run", STEPS, wanted, finished) == name


def test_steps_that_are_fractions() -> None:
    assert choose_step("run", {"s_0.25": 0.25, "s_-3": -3}, None) == "s_0.25"
    assert choose_step("run", {"s_0.25": 0.25, "s_-3": -3}, -3) == "s_-3"


def test_a_step_that_does_not_exist() -> None:
    with pytest.raises(UsageError) as caught:
        choose_step("run", STEPS, 7)
    assert str(caught.value) == "run has no step 7\n  It has `ckpt_2`, `ckpt_9`, `ckpt_10`."
    with pytest.raises(UsageError, match=r"It has no steps\."):
        choose_step("run", {}, 7)


def test_the_latest_of_many_steps_are_listed() -> None:
    many = {str(n): n for n in range(13)}
    with pytest.raises(UsageError, match=r"It has `3`, `4`, .*, `11`, `12` and 3 more\."):
        choose_step("run", many, 99)


@pytest.mark.parametrize("wanted", [None, 5])
def test_a_step_under_two_names(wanted: int | None) -> None:
    with pytest.raises(SourceError) as caught:
        choose_step("run", {"b_5": 5, "a_5": 5.0, "a_4": 4}, wanted)
    assert str(caught.value).startswith("run has step 5")
    assert str(caught.value).endswith(
        " more than once: `a_5`, `b_5`\n  Name the path of the one that is meant."
    )


def test_steps_of_which_none_was_finished() -> None:
    with pytest.raises(SourceError, match="No step of run was ever committed: `ckpt_2`, `ckpt_9`, `ckpt_10`"):
        choose_step("run", STEPS, None, [])


@pytest.mark.parametrize(
    ("items", "wanted", "chosen"),
    [
        (["a"], None, "a"),
        (["a", "b"], "b", "b"),
        ([], None, None),
        (["model_params", "optimizer_state"], None, "model_params"),  # tunix, and MaxText's fine-tuning
        (["ema", "opt_state", "rngs"], None, "ema"),
        (["ema", "opt_state"], "opt_state", "opt_state"),  # asked for
        (["optimizer"], None, "optimizer"),  # nothing else is there
    ],
)
def test_an_item(items: list[str], wanted: str | None, chosen: str | None) -> None:
    assert choose_item("step", items, wanted) == chosen


@pytest.mark.parametrize(
    ("items", "wanted", "says"),
    [
        (["a", "b"], None, "step has several items with arrays: `a`, `b`\n  Choose one: `item=NAME`."),
        (["a", "opt_state", "b"], None, "step has several items with arrays: `a`, `b`\n"),
        (["ema"], "emma", "The item `emma` of step does not exist; did you mean `ema`?\n  Items with"),
        (["ema"], "data", "The item `data` of step has no arrays\n  Items with arrays: `ema`."),
        ([], "x", "The item `x` of step does not exist\n  Items with arrays: none."),
    ],
)
def test_an_item_that_is_not_clear(items: list[str], wanted: str | None, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_item("step", items, wanted, ["data"])
    assert str(caught.value).startswith(says)


def test_names_are_safe_to_print_and_few() -> None:
    assert quoted(["a\x1b"]) == "`a\\x1b`"
    names = [str(n) for n in range(12)]
    assert quoted(names).endswith("`9` and 2 more")
    assert quoted(names, last=True).startswith("`2`, ")
    assert quoted([]) == ""


def test_nothing_to_choose() -> None:
    check_no_choice("x")
    with pytest.raises(UsageError, match=r"x has no steps to choose from\s+Leave out `step=0`"):
        check_no_choice("x", 0)
    with pytest.raises(UsageError, match=r"x has no items to choose from\s+Leave out `item=`"):
        check_no_choice("x", item="")
