"""`restore`: what the result is, what the target gives, and what is refused."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DataError, PlanError, RecipeError, SourceError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.formats.plain_files import ListedSource
from ckpt_surgery.planner.plan import Plan
from tests.support.calls import record_calls

RNG = np.random.default_rng(0)
KERNEL = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def model(tmp_path: Path) -> str:
    save_file({"layer.w": KERNEL, "layer.b": np.ones(3, np.float32)}, tmp_path / "model.safetensors")
    return str(tmp_path / "model.safetensors")


RECIPE = {"version": 1, "rules": [{"match": r"layer\.(?P<n>.*)", "to": "dense/${n}"}]}


def abstract(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def test_the_result_has_the_structure_and_the_dtypes_of_the_target(model: str) -> None:
    target = {"dense": {"w": abstract((4, 3), jnp.bfloat16), "b": abstract((3,))}}
    found = ckpt_surgery.restore(RECIPE, model, target=target)
    assert str(jax.tree.structure(found)) == str(jax.tree.structure(target))
    assert (found["dense"]["w"].dtype, found["dense"]["b"].dtype) == (jnp.bfloat16, np.float32)
    np.testing.assert_array_equal(found["dense"]["w"], KERNEL.astype(jnp.bfloat16))


def test_a_cast_to_the_dtype_of_the_target_is_in_the_plan_and_never_overflows(tmp_path: Path) -> None:
    save_file({"a": np.array([1e6], np.float32)}, tmp_path / "large.safetensors")
    plans: list[Plan] = []
    source, target = tmp_path / "large.safetensors", {"a": abstract((1,), np.float16)}
    with pytest.raises(DataError, match="`a`"):
        ckpt_surgery.restore(None, source, target=target, on_plan=plans.append)
    assert [step.fate.value for step in plans[0].steps] == ["transformed"]


@pytest.mark.parametrize(
    ("number", "own", "of_jax"),
    [(7, np.int64, np.int32), (2.5, np.float64, np.float32), (True, np.bool_, np.bool_)],
)
def test_numbers_take_the_dtypes_of_the_target_unless_the_recipe_keeps_their_own(
    number: Any, own: Any, of_jax: Any
) -> None:
    keep = {"version": 1, "target": {"dtype": "source"}}
    source, target = {"n": number}, {"n": jnp.zeros((), jnp.float16)}
    for recipe, like, dtype, wide in [
        (None, jnp.zeros((), jnp.float16), jnp.float16, False),
        (keep, np.zeros((), np.float16), own, False),
        (keep, jnp.zeros((), jnp.float16), of_jax, False),
        (keep, abstract((), jnp.float16), own, True),
    ]:
        with jax.enable_x64(wide):
            found = ckpt_surgery.restore(recipe, source, target={"n": like})["n"]
        assert (found.dtype, found.item()) == (dtype, number)
    with pytest.raises(DataError, match="`n`"):
        ckpt_surgery.restore(keep, {"n": 2**40}, target=target)


WIDE = {
    "a": np.array([2**40, -1]),
    "b": np.array([[1e300]]),
    "c": np.arange(2, dtype=np.uint64),
    "d": np.array([1e300j, 1]),
}


def test_without_a_target_arrays_of_64_bits_are_numpys_as_orbax_restores_them(tmp_path: Path) -> None:
    tree = {**WIDE, "w": KERNEL, "n": 2**40}
    save_file({name: tree[name] for name in "abcw"}, tmp_path / "wide.safetensors")
    ckpt_surgery.apply(None, tree, dst=tmp_path / "orbax")
    theirs = ocp.PyTreeCheckpointer().restore(tmp_path / "orbax")
    for source in (tree, tmp_path / "wide.safetensors", tmp_path / "orbax"):
        found = ckpt_surgery.restore(None, source)
        assert isinstance(found["w"], jax.Array)
        for name in WIDE.keys() & found.keys():
            assert type(found[name]) is type(theirs[name]) is np.ndarray
            assert found[name].dtype == WIDE[name].dtype
            np.testing.assert_array_equal(found[name], theirs[name])
    with jax.enable_x64(True):
        found = ckpt_surgery.restore(None, tree)
    assert all(isinstance(found[name], jax.Array) for name in WIDE)
    np.testing.assert_array_equal(found["a"], WIDE["a"])


def test_arrays_of_64_bits_that_shardings_cover_are_refused() -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    whole = NamedSharding(mesh, PartitionSpec())
    source = {"w": KERNEL, "a": WIDE["a"], "b": WIDE["b"]}
    narrow = {"version": 1, "rules": [{"match": "a", "value": "cast(x, 'float32')"}]}
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.restore(None, source, shardings=whole)
    assert len(caught.value.problems) == 2
    prefix, rules = {"a": whole, "b": None, "w": whole}, (mesh, [("[aw]", PartitionSpec())])
    for shardings in (prefix, rules):  # `a` is covered, `b` is not
        with pytest.raises(PlanError, match="`a` is int64") as caught:
            ckpt_surgery.restore(None, source, shardings=shardings)
        assert len(caught.value.problems) == 1
        free = ckpt_surgery.restore(narrow, source, shardings=shardings)
        assert (free["a"].sharding, type(free["b"])) == (whole, np.ndarray)


def test_warnings_are_logged_where_nobody_looks_at_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    tree = {"a": np.ones(2, np.float32)}
    recipe = {"version": 1, "output": {"sharding": "target"}}
    ckpt_surgery.restore(recipe, tree, target=tree)
    assert [record.name for record in caplog.records] == ["ckpt_surgery"]
    assert "output.sharding" in caplog.text
    caplog.clear()
    plans: list[Plan] = []
    ckpt_surgery.restore(recipe, tree, target=tree, on_plan=plans.append)
    assert (len(plans[0].warnings), caplog.records) == (1, [])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return record_calls(monkeypatch, ListedSource, "read", lambda source, leaf, region: leaf.key.text)


def test_a_recipe_with_a_mistake_reads_nothing(model: str, reads: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        ckpt_surgery.restore("version: 1\nrules:\n  - match: 'a('\n    to: b\n", model)
    place = caught.value.problems[0].place
    assert place is not None
    assert (place.file, place.path, place.line) == ("(recipe)", "rules[0].match", 3)
    assert reads == []
    ckpt_surgery.restore(None, model)
    assert sorted(reads) == ["layer.b", "layer.w"]


# --- donation ---------------------------------------------------------------------------------------------


@pytest.fixture
def donated() -> dict[str, Any]:
    return {f"a{i}": jnp.full((300,), float(i)) for i in range(3)}


def damage_a_chunk(path: Path) -> None:
    chunk = next(path.glob("a2/0*"))
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    chunk.write_bytes(data)


def remove_a_chunk(path: Path) -> None:
    next(path.glob("a2/0*")).unlink()


@pytest.mark.parametrize("spoil", [damage_a_chunk, remove_a_chunk])
def test_files_that_are_bad_delete_nothing_of_a_donated_target(
    spoil: Any, donated: dict[str, Any], tmp_path: Path
) -> None:
    state = {f"a{i}": RNG.standard_normal(300).astype(np.float32) for i in range(3)}
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(tmp_path / "run", state)
    spoil(tmp_path / "run")
    with pytest.raises(SourceError, match="a2"):
        ckpt_surgery.restore(None, str(tmp_path / "run"), target=donated, donate=True)
    assert [array.is_deleted() for array in donated.values()] == [False] * 3


@pytest.mark.parametrize(
    ("last", "dtype", "recipe"),
    [
        ([1.0, 1e39], jnp.float32, None),
        ([1.0, 3e5], jnp.float32, "version: 1\nrules:\n- {match: a2, value: \"cast(x, 'float16')\"}\n"),
        ([1.0, 3.5e38], jnp.bfloat16, None),
    ],
)
def test_values_that_are_bad_delete_nothing_of_a_donated_target(
    last: list[float], dtype: Any, recipe: str | None
) -> None:
    target = {f"a{i}": jnp.zeros(2, dtype) for i in range(3)}
    source = {"a0": np.zeros(2), "a1": np.ones(2), "a2": np.array(last)}
    with pytest.raises(DataError, match="a2") as caught:
        ckpt_surgery.restore(recipe, source, target=target, donate=True)
    assert [array.is_deleted() for array in target.values()] == [False] * 3
    assert len(caught.value.problems) == 1


def test_an_error_that_comes_later_names_what_is_gone(donated: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({key: np.ones(300, np.float32) for key in donated}, path)
    seen = []

    def change(progress: Progress) -> None:
        seen.append(progress.doing)
        if progress.doing == "reading" and progress.done_bytes == progress.total_bytes:
            path.touch()

    with pytest.raises(SourceError, match="changed while it was read") as caught:
        ckpt_surgery.restore(None, str(path), target=donated, donate=True, progress=change)
    assert all(array.is_deleted() for array in donated.values())
    assert "already deleted of the target: `a{0..2}`; none of its arrays is left" in str(caught.value)
    assert seen == sorted(seen)
    assert set(seen) == {"checking", "reading"}


def test_errors_of_the_program_itself_name_what_is_gone_too(model: str) -> None:
    target = {"layer.b": jnp.zeros(3), "layer.w": jnp.zeros((4, 3))}

    def fail(progress: Progress) -> None:
        if progress.doing == "reading" and target["layer.b"].is_deleted():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        ckpt_surgery.restore(None, model, target=target, donate=True, workers=1, progress=fail)
    assert "`layer.b`" in caught.value.__notes__[0]


def test_targets_without_arrays_are_not_computed_twice(model: str, reads: list[str]) -> None:
    target = {"layer.w": abstract((4, 3)), "layer.b": abstract((3,))}
    ckpt_surgery.restore(None, model, target=target, donate=True)
    assert sorted(reads) == ["layer.b", "layer.w"]
