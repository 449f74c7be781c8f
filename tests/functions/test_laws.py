"""The laws that every function keeps: any region of the result is that region of the whole, bit for bit."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.rewrites.axes import replaced
from ckpt_surgery.core.selections import Selection, bounding_box
from ckpt_surgery.functions.base import MARK, Function
from ckpt_surgery.functions.contractions import Einsum, product
from ckpt_surgery.functions.create import Arange, Full, Init, InPlaceOf
from ckpt_surgery.functions.dtypes import Bitcast, Cast, Rounded
from ckpt_surgery.functions.indexing import Copies, Index, Take
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.layout import Pad, Reshape, Transpose
from ckpt_surgery.functions.masks import KthMagnitude, LargestMask, RandomMask, Ranks
from ckpt_surgery.functions.nonfinite import AllowNonfinite, may_be_nonfinite
from ckpt_surgery.functions.operators import Binary, RequireEqual, Unary, Where
from ckpt_surgery.functions.quantization import Quantize, Unpack
from ckpt_surgery.functions.reductions import Extreme, KarcherWeights, ListReduction, Mean, Norm, Sum
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.functions.resizing import Resize
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.evaluation import evaluate, spec_of
from tests.support.primitives import primitives
from tests.support.stored_arrays import Files, codec_of, decoded, store
from tests.support.strategies import regions, selections

pytestmark = pytest.mark.each

F32, BF16, INT8 = map(dtype_named, ("float32", "bfloat16", "int8"))
Case = tuple[Function, tuple[str, ...]]
ALL = (None, None, None)

LAYOUT: list[Case] = [
    (Index((1,)), ("bfloat16[3,4]",)),
    (Index(((None, None, -2), None, (1, 5, 2))), ("float32[5,7]",)),
    (Index(((4, 1, -1), 0, ...)), ("float32[5,2,3]",)),
    (Index(((2, 2, None),)), ("float32[5]",)),  # nothing is left
    (Index(()), ("float32[]",)),
    (Index((0, ALL, 0, None, ALL)), ("float32[1,3,1,2]",)),
    (Take((3, 0, -1, 3), 1), ("float32[2,5]",)),
    (Take((), 0), ("float32[2,5]",)),
    (Copies((1, 3), (1, 1)), ("bfloat16[2,4]",)),
    (Copies((0, 1), (1, 1)), ("bfloat16[2,4]",)),
    (Copies((1, 1), (2, 3)), ("int32[3,2]",)),
    (Copies((2, 1), (3, 2)), ("int8[3,2]",)),
    (Transpose((1, 2, 0)), ("int4[2,3,4]",)),  # not its own inverse
    (Reshape((4, -1)), ("float32[2,6,2]",)),
    (Reshape((3, 2, 1, 4)), ("bfloat16[6,4]",)),  # splits the first axis only
    (Reshape((24,)), ("bfloat16[2,3,4]",)),
    (Reshape((3, 8)), ("bfloat16[4,6]",)),  # one group of axes
    (Reshape((0, 5)), ("float32[2,0,3]",)),
    (Pad(1, 6, -1.5), ("bfloat16[2,4]",)),
    (Pad(0, 3), ("uint8[0,4]",)),
]

LISTS: list[Case] = [
    (Stack(), ("bfloat16[3,2]",) * 4),
    (Stack(1, fill=7, count=6, places=(4, 1)), ("float32[3,2]",) * 2),
    (Stack(), ("float32[]",) * 3),
    (Concat(1), ("float32[2,3]", "float32[2,0]", "float32[2,4]")),
    (Concat(), ("bfloat16[2]", "float32[3]")),  # one of them computed, both nominally bfloat16
    (ListReduction("sum"), ("bfloat16[3,2]",) * 3),
    (ListReduction("mean"), ("int8[3,2]",) * 3),
    (ListReduction("max"), ("float32[3,2]",) * 2),
]

DTYPES: list[Case] = [
    (Cast(BF16), ("float32[3,5]",)),
    (Cast(INT8, "saturate"), ("float32[3,5]",)),
    (Cast(dtype_named("float64")), ("int4[3,5]",)),
    (Cast(F32), ("float32[3,5]",)),  # which changes nothing
    (Rounded(BF16, "inf"), ("float32[3,5]",)),
    (AllowNonfinite(), ("float32[3,5]",)),
    (Bitcast(BF16), ("uint16[3,5]",)),
    (Bitcast(F32), ("int8[2,12]",)),
    (Bitcast(dtype_named("uint8")), ("bfloat16[2,3]",)),
]

ARITHMETIC: list[Case] = [
    *((Binary(op), ("float32[3,5]", "float32[5]")) for op in ("+", "-", "*", "/", "//", "%", "<", "==")),
    (Binary("**", left=2), ("bfloat16[3,5]",)),
    (Binary("**", right=3), ("int32[3,5]",)),
    (Binary("/", right=3), ("int8[3,5]",)),
    (Binary("&"), ("bool[3,1]", "bool[5]")),
    (Binary("|", right=4), ("uint8[3,5]",)),
    (Binary("+"), ("float32[1,5]", "float32[3,1]")),
    (Binary("*", right=0.5), ("float32[]",)),
    (Binary("maximum", None, 0.25), ("bfloat16[3,5]",)),
    (Binary("minimum"), ("float64[3,5]", "float64[5]")),
    (Where(b=0), ("bool[3,1]", "float16[5]")),
    (Where(), ("bool[5]", "int32[3,1]", "int32[]")),
    *((Unary(op), ("float32[3,37]",)) for op in ("abs", "exp", "log", "sqrt", "rsqrt", "neg")),
    *((Unary(op), ("float32[3,37]",)) for op in ("sin", "cos", "arccos", "sign")),
    *((Unary(op), ("float64[3,37]",)) for op in ("exp", "log", "sin", "cos", "arccos")),
    (Unary("sign"), ("int8[3,5]",)),
    (Unary("not"), ("bool[3,5]",)),
    (RequireEqual("equal"), ("float32[0,3]", "bfloat16[0,3]")),  # others are in test_arithmetic
]

REDUCTIONS = (Sum, Mean, Extreme, partial(Extreme, op="min"), Norm)
SUMS: list[Case] = [
    *((f(), ("float32[4,5,3]",)) for f in REDUCTIONS),
    *((f(1), ("bfloat16[4,5,3]",)) for f in REDUCTIONS),
    *((f((0, 2), keepdims=True), ("float32[9,5,33]",)) for f in REDUCTIONS),
    (Sum(0), ("float32[300,7]",)),  # NumPy's own order would depend on the number of columns
    (Sum(0), ("int8[5,0]",)),
    (Norm(-1, ord=1), ("complex64[3,5]",)),
    (Norm(-1, ord="inf"), ("float16[3,5]",)),
    (product(2, 2), ("float32[6,40]", "float32[40,7]")),
    (product(4, 3), ("bfloat16[2,1,3,4]", "bfloat16[5,4,2]")),
    (product(1, 3), ("float64[4]", "float64[3,4,2]")),
    (product(2, 1), ("float32[3,4]", "float32[4]")),
    (product(1, 1), ("int8[4]", "int8[4]")),
    (Resize((5, 3, 2), "cubic"), ("float32[3,4,2]",)),
    (Resize((2, 9), "linear"), ("bfloat16[7,4]",)),
    (Resize((2, 9), "linear", antialias=False), ("float64[7,4]",)),
    (Einsum("bij,bjk->bik"), ("float32[2,3,9]", "float32[2,9,4]")),
    (Einsum("ij,jk,kl"), ("bfloat16[3,4]", "bfloat16[4,2]", "bfloat16[2,5]")),
    (Einsum("ii->i"), ("float32[4,4]",)),
    (Einsum("iij->j"), ("float32[3,3,4]",)),
]

QUANTIZED: list[Case] = [
    (Quantize(INT8, 1), ("float32[4,6]",)),
    (Quantize(INT8, 1, "scale"), ("float32[4,6]",)),
    (Quantize(dtype_named("float8_e4m3fn"), (0, 2)), ("bfloat16[2,3,4]",)),
    (Quantize(dtype_named("int4"), None, "scale"), ("float64[4,6]",)),
    (Unpack(dtype_named("float4_e2m1fn")), ("uint8[3,5]",)),
    (Unpack(dtype_named("int4")), ("int8[2,5]",)),
    (Unpack(dtype_named("uint2")), ("uint8[2,3]",)),
]

MASKS: list[Case] = [
    (KthMagnitude(5), ("float32[4,6]",)),
    (LargestMask(), ("int8[4,6]", "uint64[2]")),
    (KthMagnitude(None, 0.4), ("float32[4,6]",)),
    (RandomMask("a/b", 7, 0.25), ("float32[4,3,5]",)),
    (RandomMask("a/b", 7, None, 2), ("float32[4,6]", "float32[4,1]")),
]

ORDERED: list[Case] = [
    (Ranks(), ("float32[4,6]",)),
    (Ranks(1), ("bfloat16[3,5,2]",)),
    (Ranks(0), ("float64[7]",)),
    (Ranks(), ("int8[2,0]",)),
    (KarcherWeights(), ("float64[4,4]", "float64[4]")),
]


CREATED: list[Case] = [
    (Full((3, 4), 2.5, BF16), ()),
    (Full((), 1, F32), ()),
    (Full((0,), 0, np.dtype(bool)), ()),
    (Arange(0, 1, 0.125, BF16), ()),
    (Init("lecun_normal", (4, 8, 3), BF16, "a/b", 3), ()),
]

REPLACED: list[Case] = [(InPlaceOf(), ("bfloat16[3,4]", "int32[2]"))]

CASES = LAYOUT + LISTS + DTYPES + ARITHMETIC + SUMS + QUANTIZED + MASKS + ORDERED + CREATED + REPLACED


def arrays_of(case: Case) -> list[np.ndarray]:
    return [numbers(spec, seed) for seed, spec in enumerate(case[1])]


@pytest.mark.parametrize("case", CASES, ids=str)
@examples(12)
@given(data=st.data())
def test_a_region_of_the_result_is_that_region_of_the_whole(case: Case, data: st.DataObject) -> None:
    arrays = arrays_of(case)
    whole = evaluate(case[0], arrays)
    region = data.draw(regions(whole.shape))
    assert same(evaluate(case[0], arrays, region), whole[region.slices])


def used_of(function: Function, arrays: list[np.ndarray], selection: Selection) -> list[np.ndarray]:
    """For each input, which of its elements `uses` names."""
    specs = [spec_of(array) for array in arrays]
    masks = [np.zeros(array.shape, bool) for array in arrays]
    for i, used in function.uses(selection, specs):
        assert all(len(set(p)) == len(p) and sorted(p) == list(p) for p in used)
        masks[i][np.ix_(*used)] = True
    return masks


@pytest.mark.parametrize("case", CASES, ids=str)
@examples(12)
@given(data=st.data())
def test_what_a_function_does_not_use_makes_no_difference(case: Case, data: st.DataObject) -> None:
    function, arrays = case[0], arrays_of(case)
    whole = evaluate(function, arrays)
    selection = data.draw(selections(whole.shape))
    masks = used_of(function, arrays, selection)
    others = [
        np.where(mask, array, numbers(spec, seed + 99))
        for seed, (mask, array, spec) in enumerate(zip(masks, arrays, case[1], strict=True))
    ]
    chosen = np.ix_(*selection)
    assert same(evaluate(function, others)[chosen], whole[chosen])
    asked = [np.zeros(array.shape, bool) for array in arrays]
    for i, region in function.needs(bounding_box(selection), [spec_of(array) for array in arrays]):
        asked[i][region.slices] = True
    if whole[chosen].size:
        assert all((mask <= region).all() for mask, region in zip(masks, asked, strict=True))


FLOATS = [
    case
    for case in CASES
    if case[1]
    and not isinstance(case[0], Where | Bitcast)
    and case[0] != Einsum("iij->j")  # `uses` names more than the diagonal
    and may_be_nonfinite(evaluate(case[0], arrays_of(case)).dtype)
]


@pytest.mark.parametrize("case", FLOATS, ids=str)
@examples(12)
@given(data=st.data())
def test_an_element_has_the_marks_of_all_that_it_is_made_of(case: Case, data: st.DataObject) -> None:
    function, arrays = case[0], arrays_of(case)
    shape = evaluate(function, arrays).shape
    region = data.draw(regions(shape))
    dice = np.random.default_rng(data.draw(st.integers(0, 99)))
    marks = [dice.choice([0, 0, 0, 1, 2], array.shape).astype(MARK) for array in arrays]
    expected = np.zeros(shape, MARK)
    for index in np.ndindex(shape):
        used = used_of(function, arrays, tuple(range(i, i + 1) for i in index))
        for mask, block in zip(used, marks, strict=True):
            expected[index] |= np.bitwise_or.reduce(block[mask], axis=None, initial=0)
    specs = [spec_of(array) for array in arrays]
    needs = function.needs(region, specs)
    given_blocks = [arrays[i][part.slices] for i, part in needs]
    given_marks = [marks[i][part.slices] for i, part in needs]
    if region.size and any(block.any() for block in given_marks):
        found = function.marks(region, specs, given_blocks, given_marks)
        assert same(found, expected[region.slices])


SELECTING = [
    case
    for case in LAYOUT + LISTS
    if case[0].is_layout and not isinstance(case[0], Reshape)  # it names a box
]


@pytest.mark.parametrize("case", SELECTING, ids=str)
@examples(20)
@given(data=st.data())
def test_what_is_moved_about_is_used_to_the_element(case: Case, data: st.DataObject) -> None:
    sizes = [arrays.size for arrays in arrays_of(case)]
    begins = np.cumsum([1000, *sizes])  # larger than any filler
    names = [
        np.arange(begin, begin + size, dtype=np.float64).reshape(array.shape)
        for begin, size, array in zip(begins, sizes, arrays_of(case), strict=False)
    ]
    whole = evaluate(case[0], names)
    selection = data.draw(selections(whole.shape))
    found = {name for name in whole[np.ix_(*selection)].ravel() if name >= 1000}
    masks = used_of(case[0], names, selection)
    used = {name for array, mask in zip(names, masks, strict=True) for name in array[mask]}
    assert used == found or not found


STORED: list[tuple[str, Callable[[int], int]]] = [
    # codec, and the length of a chunk along an axis of this length
    ("raw", lambda length: max(1, length)),
    ("zlib", lambda length: max(1, length)),
    ("raw", lambda length: 1),
    ("zlib", lambda length: -(-length // 2) or 1),
    ("big", lambda length: length + 1),
]


def stored_as(
    arrays: list[np.ndarray], codec: str, chunk: Callable[[int], int]
) -> tuple[list[Manifest], Files]:
    files: Files = {}
    manifests = [
        store(a, tuple(map(chunk, a.shape)), codec_of(codec, tuple(range(a.ndim))), str(i), files)
        for i, a in enumerate(arrays)
    ]
    return manifests, files


@pytest.mark.parametrize("case", [case for case in CASES if case[1]], ids=str)
def test_a_manifest_without_new_bytes_decodes_to_the_result(case: Case) -> None:
    arrays = arrays_of(case)
    expected = evaluate(case[0], arrays)
    for codec, chunk in STORED:
        manifests, files = stored_as(arrays, codec, chunk)
        found = case[0].relink(manifests)
        assert found is None or same(decoded(found, files), expected)


def test_every_layout_function_has_a_case_that_takes_no_new_bytes() -> None:
    linked = {
        type(case[0])
        for case in LAYOUT + LISTS + DTYPES
        for codec, chunk in STORED
        if case[0].relink(stored_as(arrays_of(case), codec, chunk)[0]) is not None
    }
    assert linked == {cls for cls in primitives() if cls.relink is not Function.relink} - {Rounded}


@pytest.mark.parametrize("case", [case for case in CASES if len(case[1]) == 1], ids=str)
def test_a_window_of_the_input_is_enough(case: Case) -> None:
    [array] = arrays_of(case)
    window = case[0].window([spec_of(array)])
    if window is not None:
        function, region = window
        assert same(evaluate(function, [array[region.slices]]), evaluate(case[0], [array]))


@pytest.mark.parametrize("case", [case for case in CASES if len(case[1]) == 1], ids=str)
def test_an_axis_that_is_followed_moves_alone_and_as_far(case: Case) -> None:
    function, ins = case[0], [spec_of(array) for array in arrays_of(case)]
    shape = function.infer(ins).shape
    for axis, length in enumerate(shape):
        followed = function.input_axis(axis, ins)
        if followed is None or 0 in shape:
            continue
        found, begin = followed
        for start in range(length):
            needed = [
                function.needs(
                    Region(replaced((0,) * len(shape), axis, at), replaced(shape, axis, at + 1)), ins
                )
                for at in (0, start)
            ]
            [(_, first)], [(_, moved)] = needed
            assert (moved.starts[found], moved.stops[found]) == (begin + start, begin + start + 1)
            assert replaced(moved.starts, found, 0) == replaced(first.starts, found, 0)
            assert replaced(moved.stops, found, 0) == replaced(first.stops, found, 0)


def test_every_function_has_a_case() -> None:
    """Those that expressions call by name, those of operators and lists, and those of the planner."""
    tested = {type(function) for function, _ in CASES}
    assert primitives() == tested
    assert {f for f in registry().values() if isinstance(f, type)} <= tested


def test_functions_are_frozen_hashable_values() -> None:
    for function, _ in CASES:
        assert hash(function) == hash(dataclasses.replace(function))  # type: ignore[type-var]


@examples(60)
@given(data=st.data())
def test_reshapes_of_any_shapes_keep_the_law(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=5))
    shape, other = (_merged(data, data.draw(st.permutations(factors))) for _ in range(2))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    region = data.draw(regions(other))
    assert same(evaluate(Reshape(other), [array], region), array.reshape(other)[region.slices])


def _merged(data: st.DataObject, factors: list[int]) -> tuple[int, ...]:
    """Neighbouring factors multiplied: one of the shapes of an array of that size."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(factors)))) | {0, len(factors)})
    return tuple(int(np.prod(factors[a:b], dtype=int)) for a, b in itertools.pairwise(cuts))
