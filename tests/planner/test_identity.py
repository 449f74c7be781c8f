"""Runs that were ended and taken up again, for every format that can be written; and digests of values."""

import dataclasses
import math
import os
import signal
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import ELEMENT_TYPES, dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError, Interrupted
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.engine import worker as journals
from ckpt_surgery.engine.staging.life import FileLines
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.functions.arrays import Apply, Array, Node, Read
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Full
from ckpt_surgery.functions.indexing import Take
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.language.hooks import HookFile, HookFunctions
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.prepared import function_text, value_digests
from ckpt_surgery.system.signals import interruptible
from tests.support.failing import raising
from tests.support.memory import MemorySource
from tests.support.plans import COMPUTED, plan_over
from tests.support.primitives import primitives
from tests.support.reading import values

WRITTEN = [name for name, known in formats.formats().items() if known.writable]
RECIPE = "version: 1\nrules:\n  - {match: '(.*)', value: x * 2}\n"
ARRAYS = {f"layer/w_{i}": np.arange(i, 3000 + i, dtype=np.float32).reshape(50, 60) for i in range(6)}
DOUBLED = {key: array * 2 for key, array in ARRAYS.items()}
CHUNKS = dict.fromkeys(ARRAYS, (10, 60))
MEMORY = 50_000


class EndingSource(MemorySource):
    """Ends the run at one of the reads."""

    def __init__(self, ends_at: int, end: Callable[[], object]) -> None:
        super().__init__(ARRAYS, CHUNKS)
        self.ends_at = ends_at
        self.end = end

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        if len(self.regions) == self.ends_at:
            self.end()
        return super().read(leaf, region)


killed = raising(lambda: DataError("as if killed"))


def planned(format: str) -> Plan:
    destination = replace(COMPUTED, encoder=opening.encoder(format, SinkOptions()), format=format)
    listings = {"source": MemorySource(ARRAYS, CHUNKS).leaves()}
    return plan_over(RECIPE, listings, destination, MEMORY, 1)


def begun(format: str, directory: Path, source: MemorySource) -> None:
    """A run with one thread, so that tasks are done in their order."""
    plan = planned(format)
    work = directory / "result"
    work.mkdir(parents=True, exist_ok=True)
    sink = opening.open_sink(format, work, SinkOptions(), outputs_of(plan))
    run(plan, {"source": source}, sink, Means(MEMORY, 1), journal=FileLines(directory / "journal"))


def assert_doubled(format: str, directory: Path) -> None:
    found = values(opening.open_source(os.fspath(directory / "result"), format))
    assert sorted(found) == sorted(DOUBLED)
    for key, array in DOUBLED.items():
        np.testing.assert_array_equal(found[key], array)


@pytest.fixture(autouse=True)
def each_task_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "FLUSH_BYTES", 1)


@pytest.mark.parametrize("format", WRITTEN)
def test_finished_tasks_are_not_done_again(format: str, tmp_path: Path) -> None:
    everything = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "whole", everything)
    assert len(everything.regions) > 10
    with pytest.raises(DataError):
        begun(format, tmp_path / "run", EndingSource(7, killed))
    rest = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "run", rest)
    assert rest.regions == everything.regions[7:]
    assert_doubled(format, tmp_path / "run")


@pytest.mark.parametrize("format", WRITTEN)
def test_what_was_damaged_meanwhile_is_done_again(format: str, tmp_path: Path) -> None:
    """After a power cut, bytes of finished tasks can be missing."""
    with pytest.raises(DataError):
        begun(format, tmp_path / "run", EndingSource(9, killed))
    for file in (tmp_path / "run/result").rglob("*"):
        if file.is_file() and file.suffix not in (".json", ".zarray", ".zgroup", ".ocdbt"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
            file.write_bytes(data)
    again = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "run", again)
    assert len(again.regions) > len(planned(format).steps)
    assert_doubled(format, tmp_path / "run")


def test_an_interrupted_run_notes_what_it_has_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even what was not flushed yet."""
    monkeypatch.setattr(journals, "FLUSH_BYTES", 1 << 40)
    with pytest.raises(Interrupted), interruptible():
        begun("orbax", tmp_path, EndingSource(7, lambda: os.kill(os.getpid(), signal.SIGINT)))
    again = MemorySource(ARRAYS, CHUNKS)
    begun("orbax", tmp_path, again)
    whole = MemorySource(ARRAYS, CHUNKS)
    begun("orbax", tmp_path / "whole", whole)
    assert len(again.regions) <= len(whole.regions) - 7
    assert_doubled("orbax", tmp_path)


F32 = dtype_named("float32")


def read(name: str, source: str = "source") -> Read:
    return Read(source, Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec((3, 3), F32)))


def digests(*values: Node) -> list[str]:
    return value_digests(list(values))


def test_other_functions_fields_inputs_and_leaves_are_told_apart() -> None:
    a, b = read("a"), read("b")
    others = [a, b, read("a", "target"), Apply(Transpose(), (a,)), Apply(Transpose((1, 0)), (a,))]
    others += [Apply(Take((0,), 0), (a,)), Apply(Take((0,), 1), (a,)), Apply(Full((3,), 0, F32), ())]
    others += [Apply(Stack(), inputs) for inputs in ((a,), (a, b), (b, a), (a, Apply(Take((0,), 0), (b,))))]
    assert len(set(digests(*others))) == len(others)
    assert digests(*others) == [digests(value)[0] for value in others]


def test_what_values_share_makes_no_difference() -> None:
    shared = Apply(Transpose(), (read("a"),))
    twice = Apply(Binary("+"), (shared, shared))
    apart = Apply(Binary("+"), (shared, Apply(Transpose(), (read("a"),))))
    assert digests(twice) == digests(apart)


def test_trees_with_many_paths_and_deep_ones() -> None:
    node: Node = read("a")
    for _ in range(60):
        node = Apply(Binary("+"), (node, node))
    for _ in range(3000):
        node = Apply(Unary("neg"), (node,))
    assert len(digests(node)[0]) == 64


# --- the text of a function -----------------------------------------------------------------------


def fields(annotation: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of this annotation may hold."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(fields, members))
    if origin is np.dtype:
        return st.sampled_from(sorted(ELEMENT_TYPES)).map(dtype_named)
    if origin is tuple and members[-1:] == (...,):
        return st.lists(fields(members[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(fields, members))
    if origin is Literal:
        return st.sampled_from(members)
    return {
        int: st.integers() | st.integers(-(2**200), 2**200),
        float: st.floats() | st.just(-0.0),
        bool: st.booleans(),
        str: st.text() | st.just("\ud800\0"),
        types.NoneType: st.none(),
        types.EllipsisType: st.just(...),
    }[annotation]


@given(data=st.data())
def test_any_fields_of_any_function(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(sorted(primitives(), key=lambda cls: cls.__qualname__)))
    hints = typing.get_type_hints(cls)
    made = []
    for _ in range(2):
        given_fields = {f.name: data.draw(fields(hints[f.name])) for f in dataclasses.fields(cls)}
        if "op" in given_fields:
            given_fields["op"] = data.draw(st.sampled_from(["+", "<=", "neg", "sqrt"]))
        try:
            made.append(cls(**given_fields))
        except FunctionError:
            assume(False)
    one, other = made
    assert function_text(dataclasses.replace(one)) == function_text(one)
    # Their repr tells 0.0 from -0.0, 1 from True and from 1.0.
    assert (function_text(one) == function_text(other)) == (repr(one) == repr(other))


NUMBERS = (0.0, -0.0, 1, 1.0, True, 2**64, -(2**63) - 1, 1e300, 5e-324, 1e22, 0.1, math.inf, -math.inf)


def test_numbers_are_told_apart() -> None:
    numbers = [*NUMBERS, math.nan, math.copysign(math.nan, -1)]
    assert len({function_text(Full((), number, F32)) for number in numbers}) == len(numbers)


def test_dtypes_of_other_byte_orders_are_others() -> None:
    swapped = np.dtype(">f4")
    assert swapped.name == F32.name
    assert function_text(Full((3,), 0, swapped)) != function_text(Full((3,), 0, F32))


def test_classes_of_one_name_are_others_in_other_modules() -> None:
    other = dataclasses.make_dataclass("Full", [], bases=(Full,), frozen=True)
    assert other.__qualname__ == Full.__qualname__
    assert function_text(other((3,), 0, F32)) != function_text(Full((3,), 0, F32))


@pytest.mark.parametrize("value", [3j, np.zeros(2), object(), [1], (1, [2])])
def test_what_fields_do_not_hold(value: Any) -> None:
    with pytest.raises(FunctionError, match="`full` cannot be saved in a plan: it holds "):
        function_text(Full((), value, F32))


def test_fields_that_are_not_compared_are_left_out() -> None:
    @dataclass(frozen=True)
    class Here(Function):
        handle: object = field(repr=False, compare=False)
        shift: int = 0

    texts = [function_text(Here(object(), 3)), function_text(Here(None, 3)), function_text(Here(None, 4))]
    assert texts[0] == texts[1] != texts[2]


def test_a_function_of_the_program_has_no_digest_and_one_of_a_file_has(tmp_path: Path) -> None:
    """Its text names the function; what a file does is in the file's own digest."""
    (tmp_path / "hooks.py").write_text("def twice(x):\n    return x * 2\n")
    x = Array(read("a"), F32)
    [found] = digests(HookFile(tmp_path / "hooks.py").call("twice", [x]).node)
    assert [found] == digests(HookFile(tmp_path / "hooks.py").call("twice", [x]).node)
    with pytest.raises(FunctionError):
        digests(HookFunctions({"twice": lambda x: x * 2}).call("twice", [x]).node)
