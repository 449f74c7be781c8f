"""Whole runs in memory: every element once, right, and whatever the budget."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import Code, DataError, PlanError, VerificationError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.engine import worker as execute
from ckpt_surgery.engine.tasks import make_tasks, outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.functions import streams
from ckpt_surgery.planner.outputs import Destination
from ckpt_surgery.planner.plan import Plan
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.memory import MemoryEncoder, MemorySink, MemorySource
from tests.support.plans import COMPUTED, plan_over
from tests.support.strategies import chunk_shapes, shapes


def planned(recipe: str, source: MemorySource, memory: int, destination: Destination = COMPUTED) -> Plan:
    return plan_over(recipe, {"source": source.leaves()}, destination, memory)


def carried_out(recipe: str, source: MemorySource, memory: int, progress=None) -> tuple[Plan, MemorySink]:
    plan = planned(recipe, source, memory)
    sink = MemorySink(outputs_of(plan))
    run(plan, {"source": source}, sink, Means(memory, 2, progress))
    assert sink.finished
    assert all((count == 1).all() for count in sink.writes.values())
    return plan, sink


RECIPE = """version: 1
rules:
  - {match: 't/(.*)', to: 'transposed/\\1', value: x.T}
  - {match: 's_(\\d+)', to: stacked, value: stack(xs)}
  - {match: half, value: 'cast(x, "bfloat16")'}
  - {match: double, value: x * 2}
"""


@examples(40)
@given(data=st.data(), memory=st.integers(20_000, 10**6))
def test_any_chunks_and_any_budget_give_the_same_values(data: st.DataObject, memory: int) -> None:
    shape = shapes(30, 1, 2, 2)
    part = data.draw(shape)
    sizes = {"s_0": part, "s_1": part} | {text: data.draw(shape) for text in ("t/w", "half", "double")}
    generator = np.random.default_rng(0)
    arrays = {text: generator.standard_normal(s).astype(np.float32) for text, s in sizes.items()}
    chunks = {text: data.draw(chunk_shapes(s)) for text, s in sizes.items()}
    try:
        _, sink = carried_out(RECIPE, MemorySource(arrays, chunks), memory)
    except PlanError as error:
        assert "the budget is" in str(error)
        return
    np.testing.assert_array_equal(sink.arrays["transposed/w"], arrays["t/w"].T)
    np.testing.assert_array_equal(sink.arrays["stacked"], np.stack([arrays["s_0"], arrays["s_1"]]))
    np.testing.assert_array_equal(sink.arrays["half"], arrays["half"].astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(sink.arrays["double"], arrays["double"] * 2)


MIXED = {
    "x": np.array([[1, -2, 3], [4, 5, 6]], np.int32),
    "u": np.array([[1, 2, 3], [4, 5, 6]], np.uint8),
    "i": np.array([[1, -1, 3], [4, 5, 6]], np.int8),
    "q": np.array([[1, -1, 0], [1, 2, 3]], ml_dtypes.int4),
    "v": np.array([[1, 2, 3], [4, 5, 6]], np.uint64),
    "b": np.array([[1, 2, 3], [4, 5, 6]], ml_dtypes.bfloat16),
    "c": np.array([[1j, 2, 3], [4, 5, 6]], np.complex64),
    "d": np.array([[1j, 2, 3], [4, 5, 6]], np.complex128),
}
PUT_TOGETHER = [
    # what is computed in a wider type, beside a leaf of the dtype that the result has for the user
    ("concat([x, sum(x, 0, keepdims=True)])", "x", [[1, -2, 3], [4, 5, 6], [5, 3, 9]]),
    ("concat([sum(x, 1, keepdims=True), x], 1)", "x", [[2, 1, -2, 3], [15, 4, 5, 6]]),
    ("stack([x[0], sum(x, 0)])", "x", [[1, -2, 3], [5, 3, 9]]),
    ("stack([sum(x, 0), x[0]], fill=7, count=3)", "x", [[5, 3, 9], [1, -2, 3], [7, 7, 7]]),
    ("concat([x[:1], sum([x, x])[:1]])", "x", [[1, -2, 3], [2, -4, 6]]),
    ("concat([u[:, :2], u @ u.T])", "u", [[1, 2], [4, 5], [14, 32], [32, 77]]),
    ("concat([u, u + i])", "u", [[1, 2, 3], [4, 5, 6], [2, 1, 6], [8, 10, 12]]),
    ("concat([u + i, sum(u, 0, keepdims=True)])", "u", [[2, 1, 6], [8, 10, 12], [5, 7, 9]]),
    ("u[:1] + i[:1] + sum(u, 0, keepdims=True)", "u", [[7, 8, 15]]),
    ("concat([v, sum(v, 0, keepdims=True)])", "v", [[1, 2, 3], [4, 5, 6], [5, 7, 9]]),
    ("concat([q, sum(q, 0, keepdims=True)])", "q", [[1, -1, 0], [1, 2, 3], [2, 1, 3]]),
    ("where(x[:1] > 1, x[:1], sum(x, 0, keepdims=True))", "x", [[5, 3, 3]]),
    ("maximum(x, sum(x, 0))", "x", [[5, 3, 9], [5, 5, 9]]),
    ("concat([b[:1], b[:1] * 2, sum(b, 0, keepdims=True)])", "b", [[1, 2, 3], [2, 4, 6], [5, 7, 9]]),
    ("concat([c, c * d])", "c", [[1j, 2, 3], [4, 5, 6], [-1, 4, 9], [16, 25, 36]]),
]


@pytest.mark.parametrize(("value", "like", "expected"), PUT_TOGETHER)
def test_arrays_of_one_dtype_go_together_however_they_are_computed(
    value: str, like: str, expected: list[list[complex]]
) -> None:
    """The result has the dtype that its parts have for the user."""
    text = re.sub(r"\b([a-z])\b", r"source['\1']", value)
    recipe = f'version: 1\nrules:\n- {{add: made, value: "{text}"}}\n'
    _, sink = carried_out(recipe, MemorySource(MIXED), 10**8)
    assert same(sink.arrays["made"], np.array(expected).astype(MIXED[like].dtype))  # type: ignore[attr-defined]


def test_progress_counts_bytes_up_to_all_and_tasks_stay_within_the_predicted_peak() -> None:
    seen: list[Progress] = []
    arrays = {"a": np.zeros((1000, 1000), np.float32), "b": np.zeros(10, np.float32)}
    source = MemorySource(arrays, {"a": (10, 1000)})
    plan, _ = carried_out("version: 1\n", source, 1_000_000, seen.append)
    assert plan.costs.bytes_out == plan.costs.bytes_computed == 4_000_040
    assert plan.costs.peak_memory <= 1_000_000
    assert all(task.working_set <= plan.costs.peak_memory for task in make_tasks(plan))
    assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)
    assert seen[-1] == Progress(4_000_040, 4_000_040)
    assert len(seen) > 3


# --- what is never written ----------------------------------------------------------------------------


def test_a_region_that_is_never_written_is_told_before_the_sink_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two outputs lack a region each, one of which is a whole output; the second is written twice in part."""
    arrays = {"a": np.ones((4, 10)), "b": np.ones((4, 10)), "c": np.ones(3), "none": np.ones((0, 3))}
    source = MemorySource(arrays, {"a": (1, 10), "b": (1, 10)})
    plan = planned("version: 1\n", source, 900)
    tasks = list(make_tasks(plan))
    assert [task.step for task in tasks] == [0] * 4 + [1] * 4 + [2]
    monkeypatch.setattr(execute, "make_tasks", lambda plan: [*tasks[1:4], *tasks[5:8], tasks[7]])
    sink = MemorySink(outputs_of(plan))
    with pytest.raises(VerificationError) as caught:
        run(plan, {"source": source}, sink, Means(900, 2))
    assert str(caught.value).splitlines()[0] == "not all elements were written of `a`, `b`, `c`"
    assert not sink.finished


# --- chunks -------------------------------------------------------------------------------------------


def test_chunks_are_those_that_the_encoder_can_write_apart() -> None:
    """It wants even lengths; the tasks are whole chunks of these, and each element is written once."""
    array = np.arange(3.0 * 7 * 10).reshape(3, 7, 10)
    source = MemorySource({"a": array}, {"a": (1, 3, 5)})

    def even(leaf: Leaf, wanted: Shape) -> Shape:
        assert leaf.key.text == "a"
        return (*wanted[:-1], wanted[-1] + wanted[-1] % 2)

    plan = planned("version: 1\n", source, 2400, replace(COMPUTED, encoder=MemoryEncoder(cuts=even)))
    (step,) = plan.steps
    assert step.cut is not None
    assert step.cut.chunks[-1] == step.cut.block[-1] == 6  # 5 without the encoder
    sink = MemorySink(outputs_of(plan))
    run(plan, {"source": source}, sink, Means(2400, 2))
    np.testing.assert_array_equal(sink.arrays["a"], array)
    assert (sink.writes["a"] == 1).all()


WHOLE = """version: 1
sources: [a, b]
rules:
  - {match: unit, value: x / norm(x)}
  - {match: half, value: x - mean(x)}
  - {match: ties, value: "x + where(topk_mask(b['ties'] - x, x.size // 3), b['ties'] - x, 0)"}
  - {match: dare, value: "where(random_mask(x, 0.5, 3), x, 0) * (norm(x, ord=1) / x.size)"}
"""


@examples(20)
@given(data=st.data(), memory=st.integers(4 * 10**6, 10**7), workers=st.integers(1, 4))
def test_what_is_known_of_whole_arrays_is_the_same_for_any_chunks_memory_and_workers(
    data: st.DataObject, memory: int, workers: int
) -> None:
    shape = data.draw(shapes(40, 1, 1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a = {name: rng.normal(size=shape).astype(np.float32) for name in ("ties", "dare", "unit")}
    a["half"] = rng.normal(size=shape).astype(ml_dtypes.bfloat16)
    b = {"ties": a["ties"] + np.round(rng.normal(size=shape)).astype(np.float32)}  # full of ties
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", 1024)
        patch.setattr(streams, "ROW", 8)
        plain = _merged(WHOLE, a, b, {}, 10**9, 1)
        chunks = {name: data.draw(chunk_shapes(shape)) for name in a}
        found = _merged(WHOLE, a, b, chunks, memory, workers)
    assert all(same(found[name], plain[name]) for name in a)
    difference = (b["ties"] - a["ties"]).ravel()
    kept = np.argsort(-np.abs(difference), kind="stable")[: difference.size // 3]
    expected = a["ties"].ravel().copy()
    expected[kept] += difference[kept]
    assert same(found["ties"], expected.reshape(shape))
    norm, mean = np.float32(np.linalg.norm(a["unit"].astype(float))), a["half"].astype(float).mean()
    np.testing.assert_allclose(found["unit"], a["unit"] / norm, rtol=3e-7)
    np.testing.assert_allclose(found["half"].astype(float), a["half"].astype(float) - mean, 1e-2, 1e-2)


def _merged(
    recipe: str,
    a: dict[str, np.ndarray],
    b: dict[str, np.ndarray],
    chunks: dict[str, Shape],
    memory: int,
    workers: int,
) -> dict[str, np.ndarray]:
    sources = {"a": MemorySource(a, chunks, "zlib"), "b": MemorySource(b, chunks, "zlib")}
    listings = {name: source.leaves() for name, source in sources.items()}
    try:
        plan = plan_over(recipe, listings, memory=memory, workers=workers)
    except PlanError as error:
        assert {problem.code for problem in error.problems} == {Code.BUDGET}
        reject()  # a chunk that is decoded as a whole does not fit
    sink = MemorySink(outputs_of(plan))
    run(plan, sources, sink, Means(memory, workers))
    return sink.arrays


def test_an_expression_that_says_a_norm_twice_reads_the_leaf_for_it_once() -> None:
    source = MemorySource({"w": np.arange(12, dtype=np.float32).reshape(3, 4)})
    recipe = "version: 1\nrules: [{match: w, value: x / norm(x) + 2 * x / norm(x)}]"
    carried_out(recipe, source, 10**6)
    assert source.regions == [Region((0, 0), (3, 4))] * 2  # for the norm, and for the result


def test_a_sum_that_is_out_of_range_is_told_with_its_key() -> None:
    source = MemorySource({"w": np.full(3, 2**62)})
    with pytest.raises(DataError, match=f"`w`: `sum` is {3 * 2**62}, out of range of int64"):
        carried_out("version: 1\nrules: [{match: w, value: x // sum(x)}]", source, 10**6)
