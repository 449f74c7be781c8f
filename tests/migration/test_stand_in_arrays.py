"""Stand-ins with shapes and dtypes: what a user's function sees, what is written down, what is refused."""

import functools
import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import einops
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.numpy import concatenate

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.migration.functions.tracing import tracing
from ckpt_surgery.migration.recorded_arrays import StandIn
from ckpt_surgery.migration.stand_in_arrays import ArrayRecorder
from tests.migration.stand_ins import check, expression_of, sample, traced

A = sample("float32", (4, 6), 1)
B = sample("float32", (4, 6), 2)

ACTIVATIONS: dict[str, Any] = {"gelu": jax.nn.gelu, "add": jnp.add}
compiled = jax.jit(lambda x: x * 2)
mapped = jax.vmap(lambda x: x * 2)


def expression(function: Callable[..., Any], *arrays: np.ndarray) -> str:
    return expression_of(traced(function, *(arrays or (A, B)))[0])


# --- what they are ---


def test_what_a_function_sees() -> None:
    def seen(x: Any) -> Any:
        assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes, len(x)) == ((4, 6), np.float32, 2, 24, 96, 4)
        assert isinstance(x, np.ndarray)
        assert isinstance(x, jax.Array)
        assert isinstance(x, int | np.ndarray)
        assert isinstance(x, LazyArray)
        assert not isinstance(x, dict | int | float)
        assert not hasattr(x, "__jax_array__")
        assert not hasattr(x, "items")
        assert x.get() is x
        assert (np.shape(x), jnp.ndim(x)) == ((4, 6), 2)
        return x

    found, _ = traced(seen, A)
    assert not isinstance(found, np.ndarray)


def test_a_moved_leaf() -> None:
    for function in (
        lambda x: x,
        lambda x: x[:],
        lambda x: x[..., :100],
        lambda x: x.astype(np.float32),
        lambda x: np.asarray(x, dtype="float32"),
        lambda x: jnp.asarray(x),
        lambda x: x.reshape(4, -1),
        lambda x: np.transpose(x, (0, 1)),
        lambda x: np.concatenate([x]),
        lambda x: x.copy().view(np.float32),
        lambda x: jax.device_get(jax.device_put(x)),
        lambda x: +x,
    ):
        assert expression(function, A) == "source['a']"


def test_expressions() -> None:
    for function, text in (
        (lambda x, y: x + y, "source['a'] + source['b']"),
        (lambda x, y: x[1:100, -1], "source['a'][1:, -1]"),
        (lambda x, y: x[::-1], "source['a'][::-1]"),
        (lambda x, y: concatenate([x, y]), "concat([source['a'], source['b']], axis=0)"),
        (lambda x, y: functools.reduce(jnp.add, [x, y]), "source['a'] + source['b']"),
        (lambda x, y: x.T.reshape(3, 8), "reshape(source['a'].T, (3, 8))"),
        (lambda x, y: x * np.float32(2), "source['a'] * full((), 2.0, 'float32')"),
        (lambda x, y: jnp.ones((4, 6)) * x, "full((4, 6), 1.0, 'float32') * source['a']"),
        (lambda x, y: jax.tree.map(lambda a: a * 2, {"k": x})["k"], "source['a'] * 2"),
        (lambda x, y: [*x][2], "source['a'][2]"),
    ):
        assert expression(function) == text


def test_a_narrow_float_is_rounded_after_every_operation() -> None:
    x = sample("bfloat16", (4, 6))
    text = "cast(cast(source['a'] * source['a'], 'bfloat16') - source['a'], 'bfloat16')"
    assert expression(lambda x: x * x - x, x) == text


def test_leaves() -> None:
    found, _ = traced(lambda x, y: [x + y, x, np.zeros_like(x)], A, B)
    assert [value.leaves for value in found] == [("a", "b"), ("a",), ()]


def test_a_large_array_of_the_program_is_a_constant() -> None:
    rows = np.arange(18, dtype=np.float32).reshape(3, 6)
    found, recorder = traced(lambda x: np.concatenate([x, rows]), A)
    assert expression_of(found) == "concat([source['a'], hooks.constant_1()], axis=0)"
    assert np.array_equal(recorder.constants["constant_1"], rows)
    check(lambda x: np.concatenate([x, rows]), A)
    check(lambda x: x + np.array([1, -0.0, np.inf, np.nan, 2, 3], np.float32), A)


def test_what_jax_narrows_is_noted() -> None:
    x = sample("float64", (4, 6))
    _, recorder = traced(lambda x, y: [jnp.add(x, 1), y + 1], x, x)
    assert recorder.narrowed == {"a": ("float64", "float32")}


# --- what is refused ---


def helper(x: Any) -> Any:
    return float(x) * 2


def _line(marker: str) -> int:
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marker}"))


def test_the_place_is_in_the_users_function() -> None:
    def branches(x: Any) -> Any:
        total = x.sum()
        if total > 0:  # here
            return x
        return -x

    with pytest.raises(UsageError) as caught:
        traced(branches, A)
    message = str(caught.value)
    assert f"{__file__}:{_line('here')}" in message
    assert "`a`" in message
    assert "ckpt_surgery.opaque(g, shape=…, dtype=…)" in message


@pytest.mark.parametrize(
    ("function", "asked"),
    [
        (lambda x: helper(x), "__float__"),
        (lambda x: np.linalg.svd(x), "`numpy.linalg.svd`"),
        (lambda x: np.fft.fft(x), "`numpy.fft.fft`"),
        (lambda x: jnp.linalg.svd(x), "`jnp.linalg.svd(x)`"),
        (lambda x: jnp.cumsum(x), "`jax.numpy.cumsum`"),
        (lambda x: jax.lax.cumsum(x), "`jax.lax.cumsum`"),
        (lambda x: jax.random.permutation(jax.random.key(0), x), "function of JAX"),
        (lambda x: jax.nn.softmax(x), "`jax.nn.softmax(x)`"),
        (lambda x: x.at[0].set(1), ".at"),
        (lambda x: x.item(), ".item"),
        (lambda x: x.__setitem__(0, 1), "__setitem__"),
        (lambda x: jax.vmap(lambda row: row * 2)(x), "function of JAX"),
        (lambda x: jax.jit(lambda row: row * 2)(x), "function of JAX"),
        (lambda x: jax.grad(jnp.sum)(x), "function of JAX"),
        (lambda x: compiled(x), "`compiled(x)`"),
        (lambda x: mapped(x), "function of JAX"),
        (lambda x: np.sort(x), "numpy.sort"),
        (lambda x: jnp.exp(x), "rounds"),
        (lambda x: x[x > 0], "index"),
        (lambda x: np.sum(x.astype("float16")), "partial sum"),
        (lambda x: list(map(int, x[0])), "__int__"),
        (lambda x: np.array(x).tolist(), ".tolist"),
        (lambda x: ACTIVATIONS["gelu"](x), "JAX"),
        (lambda x: einops.rearrange(x, "a b -> b a"), "library"),
    ],
)
def test_what_no_expression_says(function: Callable[[Any], Any], asked: str) -> None:
    with pytest.raises(UsageError) as caught:
        traced(function, A)
    message = str(caught.value)
    assert asked in message
    assert __file__ in message
    assert "opaque" in message


def test_nothing_hides_a_refusal() -> None:
    def unseen(x: Any) -> Any:
        try:
            return ACTIVATIONS["gelu"](x)
        except Exception:  # noqa: BLE001
            return x * 2

    with pytest.raises(UsageError, match="JAX"):
        traced(unseen, A)

    def sneaky(x: Any, hidden: type[BaseException]) -> Any:
        try:
            return x if float(x.sum()) else -x
        except hidden:
            return x * 2

    for hidden in (Exception, BaseException):
        with pytest.raises(UsageError, match="__float__"):
            traced(lambda x, hidden=hidden: sneaky(x, hidden), A)


def test_changes_in_place_are_refused() -> None:
    def scaled(x: Any) -> Any:
        x *= 2
        return x

    with pytest.raises(UsageError, match="in place"):
        traced(scaled, A)
    check(lambda x: scaled(jnp.asarray(x)), A)  # arrays of JAX are new ones


def test_what_fails_with_arrays_fails_in_the_same_way() -> None:
    for function, error in (
        (lambda x: x[7], IndexError),
        (lambda x: x.reshape(5, 5), ValueError),
        (lambda x: np.concatenate([x, x[0]]), ValueError),
        (lambda x: np.split(x, 3), ValueError),
        (lambda x: 1 // 0, ZeroDivisionError),
        (lambda x: x.no_such_thing, AttributeError),
    ):
        with pytest.raises(error):
            function(A)
        with pytest.raises(error):
            traced(function, A)


@pytest.mark.slow("compiles functions of JAX")
def test_expressions_beyond_the_limits_of_the_language() -> None:
    def repeats(x: Any) -> Any:
        for _ in range(200):
            x = x + x * x  # grows
        return x

    def nests(x: Any) -> Any:
        for _ in range(200):
            x = x * 0.5  # nests
        return x

    for function, marker, told in ((repeats, "grows", "characters"), (nests, "nests", "nested deeper")):
        with pytest.raises(UsageError, match=told) as caught:
            traced(function, A)
        assert f"{__file__}:{_line(marker)}" in str(caught.value)


# --- replacements ---


def test_replacements_are_taken_back() -> None:
    before = (jnp.add, jnp.concatenate, concatenate, isinstance, np.asarray, jax.vmap, compiled)
    with pytest.raises(KeyError):
        traced(lambda x: {}[0], A)
    traced(lambda x: jnp.add(x, 1), A)
    assert (jnp.add, jnp.concatenate, concatenate, isinstance, np.asarray, jax.vmap, compiled) == before


@pytest.mark.slow("compiles functions of JAX")
def test_other_threads_compute_meanwhile() -> None:
    def compute() -> list[Any]:
        doubled = [compiled(jnp.ones(2)), jax.vmap(lambda x: x * 2)(jnp.ones(2))]
        parts: list[Any] = [jnp.ones(2), jnp.zeros(1)]
        return [jnp.concatenate(parts), concatenate(parts), *doubled, np.asarray([1, 2]), isinstance(1, int)]

    with ThreadPoolExecutor(1) as thread:
        results: list[Any] = []
        assert expression(lambda x: results.extend(thread.submit(compute).result()) or jnp.add(x, 1), A) == (
            "source['a'] + 1"
        )
    assert [np.asarray(result).tolist() for result in results] == [
        *([1, 1, 0], [1, 1, 0], [2, 2], [2, 2], [1, 2], True),
    ]


def test_two_threads_trace_at_the_same_time() -> None:
    barrier = threading.Barrier(2)

    def added(n: int) -> str:
        return expression(lambda x: (barrier.wait(60), jnp.add(x, n))[1], A)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(added, (1, 2))) == ["source['a'] + 1", "source['a'] + 2"]


def test_a_stand_in_that_is_left_over_reads_nothing() -> None:
    kept: list[StandIn] = []
    recorder = ArrayRecorder()
    traced(lambda x: kept.append(x) or x, A)
    with pytest.raises(UsageError), tracing(recorder):
        raise kept[0]._recorder.refused("it asks for values")


MODULE = """
import jax
import numpy
from jax.numpy import concatenate as join

def doubled(x):
    return join([x, x]) if isinstance(x, jax.Array) and isinstance(x, numpy.ndarray) else x

def total(x):
    return float(x.sum())
"""


@pytest.mark.parametrize("imported", ["before", "meanwhile"])
def test_functions_of_other_modules(imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"model_surgery_{imported}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    if imported == "before":
        importlib.import_module(name)
    found = expression(lambda x: importlib.import_module(name).doubled(x), A)
    assert found == "concat([source['a'], source['a']], axis=0)"
    with pytest.raises(UsageError) as caught:
        traced(lambda x: importlib.import_module(name).total(x), A)
    assert f"{tmp_path / name}.py:10" in str(caught.value)
    assert importlib.import_module(name).doubled(1) == 1
