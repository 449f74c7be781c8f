"""NaN and infinity that a computation makes: refused, or permitted and counted, whatever the chunks."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.errors import DataError
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from tests.support.memory import MemorySink, MemorySource
from tests.support.plans import plan_over

INF, NAN = np.inf, np.nan
BIG = {"float16": 6e4, "bfloat16": 3e38, "float32": 3e38, "float64": 1.7e308, "float8_e5m2": 5e4}
BIG |= {"float8_e4m3fn": 448, "float8_e4m3": 240, "float8_e3m4": 15.5, "float8_e5m2fnuz": 5e4}
ROWS, COLUMNS = 40, 6
PLACE = (33, 4)


def computed(value: str, memory: int = 10**6, **arrays: np.ndarray) -> tuple[np.ndarray, Mapping[int, int]]:
    """The value `out`, and the numbers of permitted elements."""
    source = MemorySource(arrays, {name: (8, COLUMNS)[: array.ndim] for name, array in arrays.items()})
    recipe = f"version: 1\nrules:\n  - {{add: out, value: {value!r}}}\n"
    plan = plan_over(recipe, {"source": source.leaves()}, memory=memory)
    sink = MemorySink(outputs_of(plan))
    written = run(plan, {"source": source}, sink, Means(memory, 2))
    number = next(n for n, step in enumerate(plan.steps) if step.leaf.key.text == "out")
    return sink.arrays["out"], {n: count for n, count in written.overflowed.items() if n == number}


def refused(value: str, memory: int = 10**6, **arrays: np.ndarray) -> str:
    with pytest.raises(DataError) as caught:
        computed(value, memory, **arrays)
    message = caught.value.problems[0].message
    assert message.startswith("`out`: ")
    return message


def ones(name: str, at: float, place: tuple[int, int] = PLACE) -> np.ndarray:
    array = np.ones((ROWS, COLUMNS), np.float64)
    array[place] = at
    return array.astype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("memory", [3_000, 10**6])
@pytest.mark.parametrize("name", BIG)
def test_what_leaves_the_range_of_any_dtype_is_refused_or_counted(name: str, memory: int) -> None:
    x = ones(name, BIG[name])
    assert f"at {list(PLACE)}" in refused("source['x'] * 2", memory, x=x)
    out, counts = computed("allow_nonfinite(source['x'] * 2)", memory, x=x)
    assert list(counts.values()) == [1]
    wide = out.astype(np.float64)
    assert not np.isfinite(wide[PLACE])
    assert np.count_nonzero(wide == 2) == wide.size - 1
    assert computed("allow_nonfinite(source['x'] * 2)", memory, x=ones(name, 1))[1] == {}


X = "source['x']"
MADE: dict[str, tuple] = {
    f"exp({X})": (1000, INF),
    f"{X} / {X}": (0, NAN),
    f"sum([{X}, {X}])": (3e38, INF),
    f"{X}[:, :4] - exp({X}[:, 2:])": (1000, -INF, (33, 2)),
    f"where({X} > 0, exp({X}), 0)": (1000, INF),
    f"dequantize({X}, {X} * 0 + 1e30)": (1e30, INF),
}


@pytest.mark.parametrize("memory", [12_000, 10**6])
@pytest.mark.parametrize("value", MADE)
def test_operators_and_functions_obey_one_rule(value: str, memory: int) -> None:
    made = MADE[value]
    at, expected, *places = made
    place = places[0] if places else PLACE
    x = ones("float32", at)
    assert f"at {list(place)}" in refused(value, memory, x=x)
    out, counts = computed(f"allow_nonfinite({value})", memory, x=x)
    assert np.array_equal(out[place], np.float32(expected), equal_nan=True)
    assert list(counts.values()) == [1]
    x[PLACE] = np.nan
    out, counts = computed(value, memory, x=x)  # made of what was not finite before
    assert np.isnan(out[place]) != value.startswith("where")
    assert counts == {}


@pytest.mark.parametrize("memory", [6_000, 10**6])
@pytest.mark.parametrize(
    "value",
    [
        "sum(source['x'], axis=1)",
        "source['x'] @ source['x'][0]",
    ],
)
def test_reductions_see_what_each_row_is_made_of(value: str, memory: int) -> None:
    x = ones("float32", 3e38)
    x[PLACE[0], 0] = 3e38
    x[2, 1] = INF
    message = refused(value, memory, x=x)
    assert f"at [{PLACE[0]}]" in message
    assert "(1 of " in message
    x[PLACE] = x[PLACE[0], 0] = 1
    out, counts = computed(value, memory, x=x)
    assert np.isinf(out[2])
    assert np.isfinite(np.delete(out, 2)).all()
    assert counts == {}


@pytest.mark.parametrize("memory", [40_000, 10**6])
def test_reductions_over_everything_mark_all_that_is_made_of_them(memory: int) -> None:
    x = ones("float32", NAN)
    out, counts = computed("source['x'] / norm(source['x'])", memory, x=x)
    assert np.isnan(out).all()
    assert counts == {}
    assert "nan" in refused("source['x'] / norm(source['x'])", memory, x=np.zeros_like(x))
    out, counts = computed("allow_nonfinite(source['x'] / norm(source['x']))", memory, x=np.zeros_like(x))
    assert list(counts.values()) == [x.size]


def test_what_is_discarded_does_not_count() -> None:
    x = ones("float32", 3e38)
    out, counts = computed("where(source['x'] < 2, source['x'] * 2, -1)", x=x)
    assert out[PLACE] == -1
    assert out[0, 0] == 2
    assert counts == {}
    assert computed("minimum(exp(source['x']), 10)", x=x)[0][PLACE] == 10
    assert computed("(source['x'] * 2)[:30]", x=x)[0].max() == 2
    assert computed("exp(source['x'] * 2) > 1", x=x)[0].all()


def test_permission_is_for_what_is_inside() -> None:
    x = ones("float32", 3e38)
    assert "inf" in refused("allow_nonfinite(source['x']) * 2", x=x)
    x[0, 0] = 1e38
    message = refused("allow_nonfinite(source['x'] * 2) * 2", x=x)
    assert "(1 of " in message
    assert "at [0, 0]" in message
    half = ones("float16", 6e4)  # computed in float32, and rounded once
    out, counts = computed("allow_nonfinite(source['x'] * 2) * 0.25", x=half)
    assert out[PLACE] == 3e4
    assert counts == {}
    out, counts = computed("allow_nonfinite(source['x'] * 2) + 1", x=half)
    assert np.isinf(out[PLACE])
    assert list(counts.values()) == [1]
    bits, counts = computed("bitcast(allow_nonfinite(source['x'] * 2), 'uint16')", x=half)
    assert bits[PLACE] == 0x7C00
    assert counts == {}
    assert "120000" in refused("bitcast(source['x'] * 2, 'uint16')", x=half).replace(",", "")


def test_a_cast_that_gives_infinity_permits_and_counts_it() -> None:
    out, counts = computed("cast(source['x'], 'float16', on_overflow='inf')", x=ones("float32", 7e4))
    assert np.isinf(out[PLACE])
    assert list(counts.values()) == [1]
    out, counts = computed("cast(source['x'], 'float16', on_overflow='inf')", x=ones("float32", INF))
    assert np.isinf(out[PLACE])
    assert counts == {}


def test_bits_that_stand_for_nan_are_as_read() -> None:
    bits = ones("uint16", 0x7FC0)
    out, counts = computed("bitcast(source['x'], 'bfloat16') * 2", x=bits)
    assert np.isnan(out[PLACE].astype(np.float32))
    assert counts == {}


def test_complex_numbers_obey_the_same_rule() -> None:
    x = ones("float32", 3e38).astype(np.complex64) * np.complex64(1j)
    assert f"at {list(PLACE)}" in refused("source['x'] * 2", x=x)
    assert list(computed("allow_nonfinite(source['x'] * 2)", x=x)[1].values()) == [1]
