"""Choosing a step and an item: which one is meant, and what there is to choose from."""

import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.formats.shared.steps import choose_item, choose_step, quoted


def test_the_latest_of_many_steps_are_listed() -> None:
    many = {str(n): n for n in range(13)}
    with pytest.raises(UsageError, match=r"It has `3`, `4`, .*, `11`, `12` and 3 more\."):
        choose_step("run", many, 99)


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


def test_names_are_safe_to_print_and_few() -> None:
    assert quoted(["a\x1b"]) == "`a\\x1b`"
    names = [str(n) for n in range(12)]
    assert quoted(names).endswith("`9` and 2 more")
    assert quoted(names, last=True).startswith("`2`, ")
    assert quoted([]) == ""
