"""Rules that differ by a number of the key, as one: the exact rules, and that nothing else is claimed."""

from typing import Any

import pytest

from ckpt_surgery.inference.drafting import drafted
from tests.support.findings import Made, found


def rules(made: list[Made], dropped: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return drafted(found(made, dropped)).document["rules"]


def stacks(names: tuple[str, ...], layers: int) -> list[Made]:
    """One stack for each name, of every so manieth layer."""
    count = len(names)
    return [
        (f"top/{name}/w", [f"h/{i}/w" for i in range(at, layers, count)], "stack(xs)")
        for at, name in enumerate(names)
    ]


def test_a_remainder_that_is_in_the_key() -> None:
    (rule,) = rules(stacks(("phase_0", "phase_1"), 6))
    assert rule["to"] == "top/phase_${int(n) % 2}/w"
    assert (rule["match"], rule["by"], "when" in rule) == (r"h/(?P<n>\d+)/w", "int(n) // 2", False)


def test_words_by_a_remainder() -> None:
    draft = drafted(found(stacks(("local", "other", "global"), 9)))
    (rule,) = draft.document["rules"]
    assert rule["to"] == "top/${choices[str(int(n) % 3)]}/w"
    assert draft.document["tables"] == {"choices": {"0": "local", "1": "other", "2": "global"}}
    assert draft.rules[0].outputs == 3


def test_what_is_not_meant_is_left_out_by_a_condition() -> None:
    made = stacks(("local", "global"), 6)
    assert [rule.get("when") for rule in rules(made, ("h/6/w", "h/7/w"))] == ["int(n) < 6", "int(n) >= 6"]


@pytest.mark.parametrize(
    "made",
    [
        [("a", [f"{i}" for i in (0, 2, 4)], "stack(xs)"), ("b", [f"{i}" for i in (1, 3, 5)], "stack(xs)")],
        [
            ("t/a/w", [f"h/{i}/w" for i in (0, 2, 4)], "stack(xs)"),
            ("t/b/w", [f"h/{i}/w" for i in (1, 3, 5)], "stack(xs, axis=1)"),
        ],
    ],
    ids=["keys with nothing in common", "other values"],
)
def test_rules_that_stay_apart(made: list[Made]) -> None:
    assert len(rules(made)) == 2
