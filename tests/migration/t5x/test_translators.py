"""Translators of T5X beside what T5X does with the same rules."""

import re
import sys
from abc import ABC
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import Code, DataError, PlanError, UsageError
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.migration.t5x import CheckpointTranslator, rules_of, translate
from tests.recipes import t5_layouts as layouts
from tests.recipes.t5_layouts import Size
from tests.recipes.test_t5 import Arrays, filled
from tests.support.comparing import assert_same
from tests.support.t5x_importer import importer, in_t5x, with_missing_slots, with_shared_biases


def variables(version: Any = "1.1", slots: Any = "factored", biases: Any = "shared") -> Arrays:
    """The variables of a T5 as its TensorFlow checkpoint has them, with random bits."""
    arrays = filled(layouts.mesh_variables(layouts.t5(Size(), version, biases), slots))
    return arrays | {"global_step": np.array(1_000_000, np.int64)}


def lazily(arrays: Mapping[str, np.ndarray], read: list[str]) -> dict[str, LazyArray]:
    """Lazy arrays that note which of them are read."""

    def made(key: str, value: np.ndarray) -> LazyArray:
        def get() -> np.ndarray:
            read.append(key)
            return value

        return LazyArray.of(value.shape, value.dtype, get)

    return {key: made(key, value) for key, value in arrays.items()}


def fetched(flat: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {key: value.get() if isinstance(value, LazyArray) else value for key, value in flat.items()}


@pytest.mark.parametrize("biases", ["shared", "per layer"])
@pytest.mark.parametrize("slots", ["whole", "factored"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_importer_of_t5_gives_t5x_s_train_state(version: str, slots: str, biases: str) -> None:
    arrays, read = variables(version, slots, biases), list[str]()
    translator = importer()
    found = translator.apply(lazily(arrays, read))
    assert read == ["global_step"]  # the only one that its rule reads
    expected = in_t5x(translator.rules, arrays) | {"state/step": np.array(1_000_000, np.int32)}
    assert_same(fetched(found), expected)
    assert list(found) == list(expected)
    state = fetched(with_shared_biases(with_missing_slots(found)))
    parameters = layouts.t5(Size(), version, biases)  # type: ignore[arg-type]
    described = {key: layouts.spec(value.shape, value.dtype.name) for key, value in state.items()}
    assert described == layouts.train_state(parameters, slots)  # type: ignore[arg-type]


def test_a_pattern_matches_from_the_start_to_the_end_and_the_first_one_wins() -> None:
    translator = CheckpointTranslator()
    for name, pattern in (("one", r"a/(\w)"), ("two", r"a/(\w+)"), ("three", r"(x|b)|c/d"), ("four", ".*")):
        translator.add(pattern)(lambda options, key, value, *groups, name=name: (f"{name}/{key}", groups))
    keys = ("a/x", "a/xy", "xa/x", "a/x/y", "b", "bc", "c/d", "c/de", "a/x\n", "")
    flat: dict[str, Any] = dict.fromkeys(keys)
    assert translator.apply(flat) == in_t5x(translator.rules, flat)
    assert translator.apply({"bc": 1}) == {"three/bc": ("b",)}  # `$` belongs to the last alternative only


def test_rules_are_functions_of_options_key_value_and_groups() -> None:
    translator, seen = CheckpointTranslator(), list[Any]()

    def keep(options: Any, key: str, value: Any, name: str) -> Any:
        seen.append(options)
        return f"{options['prefix']}{name}", value

    assert translator.add("keep/(.*)")(keep) is keep
    assert translator.rules == [(re.compile("keep/(.*)$"), keep)]
    translator.add("drop/.*")(lambda options, key, value: (None, None))
    flat = {"drop/a": 1, "drop/b": 2, "keep/c": 3, "keep/d": 4}
    assert translator.apply(flat, prefix="x_", layers=3) == {"x_c": 3, "x_d": 4}
    assert seen == [{"prefix": "x_", "layers": 3}] * 2
    assert seen[0] is seen[1]


def test_functions_see_lazy_arrays_as_t5x_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the step would be passed on as it is, without a word."""
    made_before = lazily({"global_step": np.array(7, np.int64)}, [])
    theirs = ModuleType("t5x.checkpoint_importer")
    theirs.LazyArray = type("LazyArray", (ABC,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "t5x.checkpoint_importer", theirs)
    found = importer(theirs.LazyArray).apply(made_before)
    assert_same(found, {"state/step": np.array(7, np.int32)})
    assert_same(in_t5x(importer(theirs.LazyArray).rules, made_before), found)  # in its own translators, too
    with pytest.raises(DataError):
        importer(theirs.LazyArray).apply(lazily({"global_step": np.array(2**31, np.int64)}, []))


def test_rules_of_other_translators() -> None:
    """T5X's own has compiled patterns; a subclass or another program's may have texts."""
    compiled = SimpleNamespace(rules=[(re.compile("a$"), print)])
    assert rules_of(compiled) == compiled.rules
    assert rules_of(SimpleNamespace(rules=(("a", print),))) == [(re.compile("a$"), print)]
    for wrong in (None, "a", SimpleNamespace(rules=3), SimpleNamespace(rules={"a": print})):
        with pytest.raises(UsageError, match="it has no `rules`"):
            rules_of(wrong)
    for rule in (print, ("a",), ("a", 3), (3, print), ("a", print, 3)):
        with pytest.raises(UsageError, match=r"rules\[1\] of the translator is"):
            rules_of(SimpleNamespace(rules=[("a", print), rule]))


def test_keys_without_a_rule_are_all_named_before_any_function_is_called() -> None:
    called = list[str]()
    rules = [(re.compile("a$"), lambda options, key, value: called.append(key))]
    flat = {"a": 1, **{f"layers_{i}/x": i for i in range(20)}, "b": 2, "c": 3, "d/e": 4, "f": 5}
    with pytest.raises(PlanError) as raised:
        translate(rules, flat, {})
    [problem] = raised.value.problems
    assert problem.code is Code.UNCLAIMED
    assert problem.message.endswith("matches `layers_{0..19}/x`, `b`, `c`, `d/e`, `f`")
    assert not called


def test_several_leaves_with_one_new_name_are_refused_with_their_keys() -> None:
    translator = CheckpointTranslator()
    translator.add(r"(\w)\d?")(lambda options, key, value, name: (name, value))
    translator.add("drop")(lambda options, key, value: (None, value))
    with pytest.raises(PlanError) as raised:
        translator.apply({"a1": 1, "b": 2, "a2": 3, "a": 4, "c1": 5, "c": 6, "drop": 7})
    assert [problem.message for problem in raised.value.problems] == [
        "3 leaves would be called `a`: `a{1,2}`, `a`",
        "2 leaves would be called `c`: `c1`, `c`",
    ]
    assert {problem.code for problem in raised.value.problems} == {Code.SAME_KEY}


@pytest.mark.parametrize("made", [None, "a", ("a",), ("a", 1, 2), (3, 1), 7])
def test_functions_that_return_no_key_and_value(made: Any) -> None:
    translator = CheckpointTranslator()
    translator.add(".*")(lambda options, key, value: made)
    with pytest.raises(UsageError, match=r"`.*<lambda>` of the translator returns .* for `w`"):
        translator.apply({"w": 1})


@pytest.mark.parametrize("pattern", ["(", 3, None])
def test_patterns_that_are_none(pattern: Any) -> None:
    with pytest.raises(UsageError, match="rule 0 of the translator"):
        CheckpointTranslator().add(pattern)
