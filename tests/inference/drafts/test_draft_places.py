"""Which numbers of keys are indices for rules."""

import pytest

from ckpt_surgery.inference.drafts.draft_places import draft_places

ALIKE = "alike"


@pytest.mark.parametrize(
    ("fates", "templates"),
    [
        ({"fc1/w": ALIKE, "fc2/w": ALIKE}, ["fc{}/w"]),
        ({"fc1/w": ALIKE, "fc2/w": "other"}, ["fc1/w", "fc2/w"]),
        ({"w1": ALIKE, "w2": "other", "w3": ALIKE}, ["w1", "w2", "w3"]),  # 2 is another one
        ({"w1/a": ALIKE, "w2/a": ALIKE, "w1/b": "other"}, ["w{}/a", "w1/b"]),
        (
            {f"layer{i}.{j}.conv": ALIKE for i, j in ((1, 0), (1, 1), (2, 0))},
            ["layer{}.{}.conv"],
        ),
        (
            {f"layer{i}.0.down.{j}.w": f"to {j}" for i in (2, 3) for j in (0, 1)},
            ["layer{}.0.down.0.w", "layer{}.0.down.1.w"],
        ),
        ({"h.0.w": ALIKE, "h.1.w": "other", "h.02.w": ALIKE}, ["h.{}.w"]),  # as names number them
    ],
)
def test_templates(fates: dict[str, str], templates: list[str]) -> None:
    found = draft_places(fates, fates.__getitem__)
    assert list(dict.fromkeys(str(found[key][0].template) for key in fates)) == templates
    assert all(grid.template.key(numbers) == key for key, (grid, numbers) in found.items())
