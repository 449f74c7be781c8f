"""Rows that no output uses, along any axis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.planner import mistakes
from tests.support.effort import examples
from tests.support.plans import plan_of
from tests.support.strategies import selections, shapes

X = {"x": "float32[64,32]"}


def warnings_of(value: str, leaves: dict[str, str] = X) -> tuple[str, ...]:
    return plan_of(f'version: 1\nrules: [{{match: x, value: "{value}"}}]\n', leaves).warnings


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("x[::4]", "1536 of 2048 at [1:4, 0:32] and 15 more ranges"),
        ("take(x, [0, 63], 0)", "1984 of 2048 at [1:63, 0:32]"),
        ("x[::-1][:8]", "1792 of 2048 at [0:56, 0:32]"),
        ("x[8:][::7][1:]", "1824 of 2048 at [0:15, 0:32] and 7 more ranges"),
        ("(x * 2 + 1)[::2]", "1024 of 2048 at [1:2, 0:32] and 31 more ranges"),
        ("x + x[0]", None),
        ("sum(x[::2], 0)", "1024 of 2048 at [1:2, 0:32] and 31 more ranges"),
        ("(x[::4] @ x[0:1].T)", "1536 of 2048 at [1:4, 0:32] and 15 more ranges"),
        ("concat([x[::2], x[1::2]])", None),
        ("concat([x[::2], x[1::4]])", "512 of 2048 at [3:4, 0:32] and 15 more ranges"),
        ("rearrange(x, '(h k) d -> k h d', k=4)[1]", "96 of 2048 at [0:1, 0:32] and 1 more ranges"),
        ("reshape(x, (-1,))[:100]", "1920 of 2048 at [4:64, 0:32]"),
        ("quantize(x, 'int8', 1)[0][::4]", "1536 of 2048 at [1:4, 0:32] and 15 more ranges"),
    ],
)  # fmt: skip
def test_elements_that_no_output_uses(value: str, says: str | None) -> None:
    expected = () if says is None else (says.replace(" at ", " elements of `x` are used by no output: "),)
    assert warnings_of(value) == expected


def test_axes_of_any_length_are_looked_at_by_what_was_taken() -> None:
    huge = {"x": f"float32[{2**40},4]"}
    says = f"{4 * (2**40 - 2)} of {2**42} elements of `x` are used by no output: [1:{2**40 - 1}, 0:4]"
    assert warnings_of(f"take(x, [0, {2**40 - 1}], 0)", huge) == (says,)


def test_what_would_take_too_long_to_list_counts_as_used_from_its_first_to_its_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mistakes, "MOST_PLACES", 8)
    assert warnings_of("x[::4]") == ("96 of 2048 elements of `x` are used by no output: [61:64, 0:32]",)
    assert warnings_of("concat([x[::4], x[1::4], x[2:], x[:2]])") == ()


def test_leaves_that_lack_the_same_elements_are_told_together() -> None:
    plan = plan_of(
        "version: 1\nrules: [{match: '.*/x', value: 'x[::2]'}]\n",
        {f"layer_{i}/x": f"float32[{4 if i < 10 else 6}]" for i in range(12)},
    )
    assert plan.warnings == (
        "2 of 4 elements of `layer_{0..9}/x` (10 leaves) are used by no output: [1:2] and 1 more ranges",
        "3 of 6 elements of `layer_{10,11}/x` (2 leaves) are used by no output: [1:2] and 2 more ranges",
    )


@examples(200)
@given(data=st.data())
def test_rows_are_those_of_a_mask_of_the_array(data: st.DataObject) -> None:
    shape = data.draw(shapes(9, 1, 1, 3))
    taken = data.draw(st.lists(selections(shape), min_size=1, max_size=5))
    mask = np.zeros(shape, bool)
    for selection in taken:
        mask[np.ix_(*selection)] = True
    rows = [mask.any(axis=tuple({*range(mask.ndim)} - {axis})) for axis in range(mask.ndim)]
    found = mistakes.unused_rows(shape, taken)
    if all(row.all() for row in rows):
        assert found is None
        return
    assert found is not None
    numbers, where = found
    assert numbers == f"{mask.size - np.prod([row.sum() for row in rows])} of {mask.size}"
    box = [tuple(map(int, part.split(":"))) for part in where.partition("]")[0].lstrip("[").split(",")]
    assert not mask[tuple(slice(*bounds) for bounds in box)].any()
    runs = sum(int(np.count_nonzero(np.diff(np.append(~row, False).astype(int)) == -1)) for row in rows)
    assert where.endswith("]" if runs == 1 else f"] and {runs - 1} more ranges")
